"""The cache as a guest on the user's disk: its limit, and what goes first."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from permissions import without_root_rights
from processes import HANGS_S

from common import ROOT
from common.cache import folder
from common.cache.files import cached, intact, making, writing
from common.cache.folder import files, keep_below
from common.cache.weight_files import mapped
from common.errors import LabError
from common.model.layout import Layout
from common.model.synthetic import pieces
from common.model.weights import load

HOUR = 3600


@pytest.fixture(autouse=True)
def no_limit_afterwards(monkeypatch):
    monkeypatch.setattr(folder, "_limit", None)


def name(number: int, suffix: str = ".cubin") -> str:
    return f"{number:064x}{suffix}"


def keep(root: Path, number: int, suffix: str = ".cubin", age: float = 0, size: int = 84) -> Path:
    """A file of the cache, with its checksum 100 bytes, last used `age` seconds ago."""
    path = root / "kind" / name(number, suffix)
    cached(path, lambda: bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_least_recently_used_goes_first(tmp_path, seed):
    ages = random.Random(seed).sample(range(10, 10000), 6)
    kept = {age: keep(tmp_path, age, age=age) for age in ages}
    oldest = sorted(ages, reverse=True)
    assert intact(kept[oldest[0]])  # used again
    keep_below(tmp_path, 400)
    new = keep(tmp_path, 1)
    assert {file.path for file in files(tmp_path)} == {new, kept[oldest[0]], *(kept[age] for age in oldest[-2:])}, seed
    assert not list(tmp_path.rglob("*.part"))


def test_what_another_one_makes_is_waited_for_and_found(tmp_path):
    path, told = tmp_path / "a", []

    def second() -> None:
        with making(path) as waited:
            told.append((waited, path.exists()))

    with making(path) as waited:
        thread = threading.Thread(target=second)
        thread.start()
        while not thread.is_alive():
            time.sleep(0.01)
        time.sleep(0.1)
        path.write_bytes(b"made")
    thread.join()
    assert (waited, told) == (False, [(True, True)])
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_process_id_do_no_harm(tmp_path):  # in two containers, whose ids begin at 1
    path = tmp_path / "kind" / name(1)
    with writing(path) as one:
        one.write_bytes(b"made")
        with writing(path) as other:
            other.write_bytes(b"made")
    assert cached(path, lambda: pytest.fail("made again")) == b"made"


def test_reading_counts_as_use_and_leaves_the_time_of_writing(tmp_path):
    path = keep(tmp_path, 1, age=HOUR)
    written = path.stat().st_mtime_ns
    cached(path, lambda: pytest.fail("made again"))
    assert path.stat().st_mtime_ns == written
    assert time.time() - files(tmp_path)[0].used < HOUR / 2


def test_a_process_looks_at_the_folder_again_when_it_has_written_much(tmp_path):
    """Its first file, and then each hundredth of the limit: a look takes long where there are many files."""
    keep_below(tmp_path, 100_000)
    keep(tmp_path, 1)
    others = [keep(tmp_path, 2 + number, age=HOUR, size=100) for number in range(3)]
    for other in others:
        os.truncate(other, 90_000)  # by other processes
    few = [keep(tmp_path, 10 + number) for number in range(6)]
    assert all(each.exists() for each in (*others, *few))
    last = [keep(tmp_path, 20 + number) for number in range(2)]
    assert sum(each.exists() for each in others) == 1
    assert all(each.exists() for each in (*few, *last))


def test_a_file_larger_than_the_limit_stays_until_the_next_one(tmp_path):
    keep_below(tmp_path, 50)
    first = keep(tmp_path, 1)
    assert first.exists()
    second = keep(tmp_path, 2)
    assert (first.exists(), second.exists()) == (False, True)


def test_only_files_of_the_cache_are_removed(tmp_path):
    others = ["kind/notes.o", "kind/weights.bf16", f"kind/{name(1, '.txt')}", name(1), f"a/b/{name(1)}"]
    for other in others:
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).write_bytes(bytes(1000))
        os.utime(tmp_path / other, (1, 1))
    keep_below(tmp_path, 10)
    keep(tmp_path, 2)
    assert all((tmp_path / other).exists() for other in others)
    keep_below(tmp_path / "elsewhere", 10)
    assert keep(tmp_path, 3).exists()
    assert keep(tmp_path, 4, age=9).exists()


@pytest.mark.parametrize("suffix", [".so", ".cubin.1-1.part"])
def test_a_kernel_or_a_part_that_may_be_in_use_stays(tmp_path, suffix):
    young, old = keep(tmp_path, 1, suffix, age=HOUR - 60), keep(tmp_path, 2, suffix, age=HOUR + 60)
    keep_below(tmp_path, 10)
    keep(tmp_path, 3)
    assert (young.exists(), old.exists()) == (True, False)


def test_weights_outlive_their_file(tmp_path, tiny, seed):
    layout = Layout(tiny)
    path = tmp_path / "weights" / name(1, ".bf16")
    keep_below(tmp_path, 1)
    maps = [mapped(path, layout.weights_size, pieces(layout, seed)) for _ in range(2)]  # made, then found
    before = maps[0].clone()
    keep(tmp_path, 2)
    assert not path.exists()
    assert all(flat.equal(before) for flat in maps)


RACE = """
import sys
from pathlib import Path
from common.cache.folder import keep_below
from common.model.shapes import Model
from common.model.weights import load
root, rounds = Path(sys.argv[1]), int(sys.argv[2])
keep_below(root, 1)
tiny = Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)
for n in range(rounds):
    flat = load("synthetic", tiny, None, root / "weights", n % 3)[2].flat
    print(n % 3, flat.double().abs().sum().item())
"""


def test_processes_that_remove_each_others_weights(tmp_path, tiny):
    """Room for no file at all: each process removes what the others have just written, found or opened."""
    argv = [sys.executable, "-c", RACE, str(tmp_path), "40"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(argv, cwd=ROOT, **pipes) for _ in "ab"]
    said = [process.communicate(timeout=HANGS_S) for process in running]
    assert [err for _, err in said] == ["", ""]
    own = [load("synthetic", tiny, None, tmp_path / "own", n)[2].flat for n in range(3)]
    sums = {f"{n} {flat.double().abs().sum().item()}" for n, flat in enumerate(own)}
    assert {line for out, _ in said for line in out.splitlines()} == sums
    assert len(list((tmp_path / "weights").iterdir())) <= 2


def test_a_run_keeps_the_limit_of_its_configuration(tmp_path, configured, tiny):
    config = configured("model=tiny", f"cache={tmp_path}", "cache_limit_gb=1e-9")
    for seed in range(3):
        load("synthetic", tiny, None, config.cache / "weights", seed)[2].pack()
    assert [file.path.parent.name for file in files(tmp_path)] == ["weights"]
    with pytest.raises(LabError, match="cache_limit_gb=-1 is not a positive number"):
        configured("cache_limit_gb=-1")


@pytest.mark.cpu
def test_worker_processes_keep_the_limit(tmp_path, configured, cpu_cache):
    from experiments.run.pool import Pool

    keep(tmp_path, 1, age=HOUR)
    config = configured("variant=baseline", "model=tiny", f"cache={tmp_path}", "cache_limit_gb=1e-9", "seed=1")
    packed = load("synthetic", config.model, None, tmp_path / "other", 1)[2]
    with Pool(config, packed.sha, [os.environ]) as pool:
        pool.describe()
    assert not (tmp_path / "kind" / name(1)).exists()


def test_files_of_another_user_stop_no_run(tmp_path):
    kept = keep(tmp_path, 1)
    kept.parent.chmod(0o500)
    try:
        with without_root_rights():
            keep_below(tmp_path, 1)
            cached(tmp_path / "mine", bytes)
    finally:
        kept.parent.chmod(0o700)
    assert kept.exists()


def test_the_place_is_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder.place() == tmp_path / "xdg" / "megakernel-lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder.place() == tmp_path / ".cache" / "megakernel-lab"
