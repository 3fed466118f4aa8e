"""Samples of the exports of nsys and the output of ncu, in their documented form."""

import os
import sqlite3
import sys
from pathlib import Path

FAKE = Path(__file__).resolve().parent / "fake_nsight.py"

# The tables and columns that nsys documents (SQLite export schema), cut to those with a meaning here.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, blockX INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
STRINGS = {1: "decode", 2: "stage_qkv", 3: "decode baseline position 1", 4: "cudaLaunchKernel"}
THREAD, OTHER = 281474976710657, 281474976710658


def write_export(path: Path) -> Path:
    """Two launches in two ranges inside an outer one, one launch in none, and ranges of another thread and kind."""
    with sqlite3.connect(path) as base:
        base.executescript(SCHEMA)
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS.items())
        kernels = [(5000, 9000, 11, 1), (9000, 11000, 12, 1), (12000, 12500, 13, 2)]
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, 0, ?, ?, 8, 256)",
            [(start, end, call, name, name) for start, end, call, name in kernels],
        )
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 4, 0)",
            [(1100, 1110, THREAD, 11), (2100, 2110, THREAD, 12), (9900, 9910, THREAD, 13)],
        )
        base.executemany(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL, ?, ?, NULL, ?, 1)",
            [
                (1000, 3000, 59, "profile baseline", THREAD, None),
                (1050, 1900, 59, None, THREAD, 3),  # a registered string
                (2000, 2900, 59, "decode baseline position 2", THREAD, None),
                (1000, 3000, 59, "of another thread", OTHER, None),
                (1090, 2950, 60, "started and ended", THREAD, None),
                (900, None, 59, "never popped", THREAD, None),
            ],
        )
    base.close()
    return path


CSV = '''==PROF== Connected to process 4242
some line of the run itself
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"GPU Speed Of Light Throughput","DRAM Throughput","%","63.25","","",""
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"GPU Speed Of Light Throughput","Elapsed Cycles","cycle","1,234,567","","",""
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"Launch Statistics","Function Cache Configuration","","CachePreferNone","","",""
"0","4242","python3.12","somewhere","decode","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0",\
"Occupancy","","","","TheoreticalOccupancy","OPT","says, ""something"""
'''


def fake_tools(folder: Path) -> dict[str, str]:
    """tests/fake_nsight.py as nsys and ncu, which start the program that they are given: variables that find it."""
    samples = folder / "nsight"
    samples.mkdir()
    for name in ("nsys", "ncu"):
        tool = folder / name
        tool.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
        tool.chmod(0o755)
    (samples / "start").touch()
    (samples / "details.csv").write_text(CSV)
    write_export(samples / "report.sqlite")
    return {"PATH": f"{folder}:{os.environ['PATH']}", "FAKE_NSIGHT": str(samples)}
