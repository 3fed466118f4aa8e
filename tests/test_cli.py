"""Command line: help, errors, progress, tables; nothing here compiles a kernel."""

import io
import json
import os
import subprocess
import sys

import pytest
from made_records import shown_run
from rich.console import Console

from common import ROOT
from common.record.store import Store
from experiments import __main__ as experiments
from experiments import generate
from experiments.tables.progress import progress
from experiments.tables.result_table import COUNTED, ResultTable, show_result
from experiments.tables.run_table import COUNTS_ONLY, show_json, show_tables

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def shell(module: str, *argv: str) -> subprocess.CompletedProcess[str]:
    # Without a GPU, whatever this machine has: the driver sees no device.
    return subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("module", ["experiments", "experiments.generate"])
def test_help_shows_examples_groups_and_keys(module, capfd):
    assert {"experiments": experiments, "experiments.generate": generate}[module].main(["--help"]) == 0
    text = capfd.readouterr().out
    for part in (f"python -m {module}", "qwen3_0_6b", "vec128, ", "\n\nKeys (key=value) and their defaults\n"):
        assert part in text
    assert "Hydra (https" not in text


@pytest.mark.parametrize(
    ("modules", "main", "light"),
    [
        ("experiments.generate, experiments.serve", "experiments.__main__", ()),
        ("profiles.target", "profiles.__main__", ("numpy",)),
    ],
)
def test_start_up_imports_nothing_heavy(modules, main, light):
    heavy = {"torch", "cupy", "transformers", "pandas", "numpy", "matplotlib", "asyncio"}.difference(light)
    code = (
        f"import sys, {modules}; from {main} import main; main(['--help']);"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.cpu
def test_a_run_leaves_torch_to_its_workers(cpu_cache, tmp_path):
    """Importing it takes longer than everything else that the command does itself."""
    given = ["variant=baseline", "model=tiny", "device=ptx", "validate=quick", "archs=[]", f"cache={cpu_cache}"]
    code = (
        "import sys; from experiments.__main__ import main; code = main(sys.argv[1:]);"
        "print(code, 'torch' in sys.modules)"
    )
    argv = [sys.executable, "-c", code, *given, f"results={tmp_path / 'records.jsonl'}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr


@pytest.mark.parametrize(
    ("module", "argv", "message"),
    [
        ("experiments", ["variant=baseline", "device=cuda"], "or use device=ptx"),
        ("experiments.generate", ["device=ptx"], "prompt_ids=[1,2,3]"),
    ],
)
def test_a_wrong_argument_ends_the_process_with_code_2(module, argv, message, tmp_path):
    done = shell(module, *argv, f"cache={tmp_path}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("streams", "argv", "code", "errors"),
    [
        (">/dev/full", "experiments.cache", 2, 1),
        (">/dev/full", "experiments --help", 2, 1),
        (">&-", "experiments.cache", 0, 0),
        ("<&- >&- 2>&-", "experiments.cache", 0, 0),
        ("2>&-", "experiments threads=7", 2, 0),
        ("2>/dev/full", "experiments threads=7", 2, 0),
    ],
)
def test_a_stream_that_is_full_or_closed_changes_no_exit_code(streams, argv, code, errors, tmp_path):
    """Buffered, as users have it: what Python flushes at its end must not fail, either."""
    script = f"{sys.executable} -m {argv} cache={tmp_path} {streams}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == errors
    assert all(line.startswith("error: the command cannot go on: No space left") for line in done.stderr.splitlines())


@pytest.mark.cpu
def test_closed_streams_keep_a_run_from_nothing(cpu_cache, tmp_path):
    """Their numbers are free for the pipes of its workers."""
    given = (
        f"variant=baseline model=tiny device=ptx validate=quick archs=[] cache={cpu_cache} results={tmp_path}/r.jsonl"
    )
    for streams in (">&- 2>/dev/null", "2>&-", "2>/dev/full"):
        script = f"{sys.executable} -m experiments {given} {streams}"
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, "grid barriers" in done.stdout) == (0, ">&-" not in streams.split())
    assert [row["status"] for row in Store(tmp_path / "r.jsonl").records()] == ["PASSED"] * 3


def test_a_path_that_stdout_cannot_say_is_escaped(tmp_path):
    argv = [sys.executable, "-m", "experiments.cache", f"cache='{tmp_path}/\u00e4'"]
    done = subprocess.run(
        argv, cwd=ROOT, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path}/\\xe4: ")


def test_a_working_folder_that_is_gone_is_one_line(tmp_path):
    script = f"cd {tmp_path}; rmdir {tmp_path}; {sys.executable} -m experiments.cache"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "error: the working folder has been removed; go to one that exists\n")


def test_hydras_own_help_needs_no_keys_of_a_run():
    done = shell("experiments", "variant=vec128", "--hydra-help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "== Flags ==" in done.stdout


def test_a_reader_that_has_gone_ends_a_command_without_a_word():
    script = f"{sys.executable} -m experiments --cfg job | head -c 1 >&2; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr)) in [(141, 1), (0, 1)]  # 0: all was in the pipe before


def test_a_table_whose_reader_has_gone_is_no_verdict(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", buffering=1, closefd=False) as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(BrokenPipeError):
            show_result(ResultTable("counts", "?", [{"variant": "vec128", "loads": 1}], COUNTED))
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # for what it still holds


def test_a_multirun_leaves_hydras_file_beside_its_records_and_no_other(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = sorted(os.listdir(ROOT))
    assert experiments.main(["-m", "threads=100,200", "device=ptx", f"results={tmp_path}/there/r.jsonl"]) == 2
    kept = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [*map(str, kept)] == ["there/multirun/multirun.yaml"]
    assert sorted(os.listdir(ROOT)) == before


def test_plain_progress_has_no_control_characters():
    stream = io.StringIO()
    with progress(2, stream) as show:
        show.begin("compile baseline")
        show.detail("half way")
        show.note("a note [not markup]")
    assert stream.getvalue() == "compile baseline\na note [not markup]\n"


def test_plain_progress_shows_a_detail_where_it_was_silent_for_long(monkeypatch):
    stream, seconds = io.StringIO(), iter(range(0, 1000, 15))
    monkeypatch.setattr("experiments.tables.progress.monotonic", lambda: next(seconds))
    with progress(2, stream) as show:
        show.begin("validate baseline")  # at 0
        for number in range(5):  # at 15, 30 and so on; a line that is shown takes the next time
            show.detail(f"seed {number}", of="vec128")
    assert stream.getvalue() == "validate baseline\nvec128: seed 1\nvec128: seed 3\n"


def test_terminal_progress_shows_step_and_detail():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with progress(2, stream) as show:
        show.begin("compile baseline")
        show.detail("half [way]")
        show.note("a note [not markup]")
    assert "a note [not markup]" in stream.getvalue()


def timed(position: int, verdict: str, us: float, gb_per_s: float, share: float, *marks: str) -> dict:
    seconds = {"median": 1e-6 * us, "low": 1e-6 * (us - 10), "high": 1e-6 * (us + 10)}
    rate = {"bandwidth": 1e9 * gb_per_s, "of_ceiling": share}
    return {"position": position, "seconds": seconds, **rate, "verdict": verdict, "marks": marks}


def stack(name: str, *variants: str, **more) -> dict:
    return shown_run(name, knobs={}, **({"counts": None, "resources": {}} | more)) | {"stack": variants}


def rows(cuda: bool) -> list[dict]:
    def measured(verdict: str) -> list[dict]:
        return [timed(at, verdict, 1000.0 + at, 953.2, 0.7124) for at in (1, 200)] if cuda else []

    def passed(name: str, variants: tuple[str, ...], error: float, stage: str, verdict: str, **counts: int) -> dict:
        worst = {"stage": stage, "layer": None, "error": error, "ratio": 0.5}
        facts = {arch: {"registers": 64 + i, "spill_bytes": 16 if i == 5 else 0} for i, arch in enumerate(ARCHS)}
        found = {"verdict": {"worst": worst}, "counts": {"qkv": counts}, "resources": facts}
        return stack(name, *variants, **found, latencies=measured(verdict))

    long = ("redundant_rmsnorm", "vec128", "atomic_barrier", "productive_spin", "fused_head", "multi_step")
    some = {"grid_barriers": 226, "weights_64bit": 1_191_968_768, "activations_32bit": 2_340}
    return [
        passed("baseline", (), 3.2e-7, "lm_head", "SAME", **some),
        passed("persistent", long, 1e-6, "attention", "FASTER", grid_barriers=113, weights_128bit=1_191_968_768),
        stack("cp_async", "cp_async", status="MISMATCH", reason="attention layer 3 [12] is 0.25, want 0.5"),
    ]


def shown(width: int, cuda: bool) -> str:
    stream = io.StringIO()
    show_tables(rows(cuda), "tiny on a machine", "cuda" if cuda else "ptx", Console(file=stream, width=width))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
@pytest.mark.parametrize("cuda", [False, True])
def test_tables_fit_the_terminal_and_keep_all_columns(width, cuda):
    text = shown(width, cuda)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines() if "│" in line) <= width
    words = text.split()
    for word in ("3.2e-07", "lm_head", "226", "113", "64/0", "69/16", "MISMATCH", "1.19", *ARCHS):
        assert word in words, word
    for name in ("redundant_rmsnorm", "productive_spin", "multi_step"):
        assert name in text
    timing = ("1001.0", "1200.0", "±1.00", "953", "71.2", "FASTER")
    assert all((word in words) == cuda for word in timing)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_long_name_is_wrapped_and_no_figure_is_cut(width):
    names = ("joint_heads", "by_value", "bulk_ring", "columns", "value_token", "tensor_rows", "tensor_scores")
    long = rows(False)[0] | {"variant": "+".join(names), "stack": names}
    stream, joined = io.StringIO(), "+".join(names)
    console = Console(file=stream, width=width)
    show_tables([long], "here", "ptx", console)
    found = [{"variant": joined, "parent": joined, "us a token": 1234567.0, "change %": -12.25}]
    show_result(ResultTable("ablation", "?", found, COUNTED, keys=2), console)
    text = stream.getvalue()
    table_lines = [line for line in text.splitlines() if "│" in line]
    assert max(map(len, table_lines)) <= width
    assert "…" not in text
    for figure in ("3.2e-07", "226", "1.19 GB", "1,234,567", "-12.25"):
        assert any(figure in line for line in table_lines), figure
    keys = [line.partition("│")[0].strip() for line in table_lines]
    assert "".join(keys).count(joined) == text.count("variant "), "each table has the whole name"


def test_a_terminal_narrower_than_a_part_cuts_no_figure():
    figures = {line.partition("│")[2].strip() for line in shown(12, False).splitlines()}
    assert {"3.2e-07 / 6.4e-07", "226", "1.19 GB", "2.34 kB", "64/0"} <= figures


def test_a_list_in_brackets_is_shown_in_every_table():
    name, stream = "l2_prefetch matrices=[o,gate]", io.StringIO()
    console = Console(file=stream, width=100)
    show_tables([rows(False)[0] | {"variant": name}], "tiny", "ptx", console)
    show_result(ResultTable("counts", "?", [{"variant": name, "loads": 1}], COUNTED), console)
    assert stream.getvalue().count("matrices=[o,gate]") >= 3  # two tables of the run, and the experiment's


@pytest.mark.parametrize("width", [100, 160])
def test_a_table_of_a_cpu_states_that_it_has_no_gpu_time(width):
    assert COUNTS_ONLY.split()[0] in shown(width, False)
    assert "not GPU time" in shown(width, False)
    assert "GPU time" not in shown(width, True)
    assert "us a token" not in shown(width, False)


def test_counts_name_the_model_that_they_are_of():
    stream = io.StringIO()
    one = rows(False)[0]
    both = [one | {"model": {"name": name}} for name in ("tiny", "odd", "tiny")]
    show_tables(both, "here", "ptx", Console(file=stream, width=200))
    assert "Counts of one token of tiny, odd, not GPU time" in stream.getvalue()


def test_wide_tables_are_not_split_without_need():
    assert shown(100, False).count("variant ") > 1 == shown(240, False).count("variant ")


def test_the_reason_is_printed_under_the_table():
    assert shown(100, True).splitlines()[-1] == "cp_async: MISMATCH attention layer 3 [12] is 0.25, want 0.5"


def test_a_table_has_only_passed_and_plausible_rows():
    def measured(*how: str) -> list[dict]:
        return [timed(1, how[0], 100.0, 9532.0, 2.1, *how[1:])]

    impossible = stack("impossible", "impossible", latencies=measured("IMPLAUSIBLE"))
    disturbed = stack("disturbed", "disturbed", latencies=measured("SAME", "2 other process(es) on the GPU"))
    interrupted = stack("stopped", "stopped", status="INTERRUPTED", reason="by hand")
    stream = io.StringIO()
    show_tables([impossible, disturbed, interrupted], "here", "cuda", Console(file=stream, width=200))
    table, _, below = stream.getvalue().partition("\n\n")
    assert ("impossible" in table, "stopped" in table, "disturbed" in table) == (False, False, True)
    assert below.split("\n")[-4:] == [
        "impossible: IMPLAUSIBLE 9532 GB/s, 210 % of the read ceiling, from position 1",
        "disturbed: from position 1, 2 other process(es) on the GPU",
        "stopped: INTERRUPTED by hand",
        "",
    ]


def test_json_prints_one_object_per_line(capsys):
    show_json(rows(True))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["status"] for row in found] == ["PASSED", "PASSED", "MISMATCH"]
    assert found[0]["counts"]["qkv"]["weights_64bit"] == 1_191_968_768
    assert found[1]["latencies"][1]["position"] == 200
    assert found[1]["resources"]["sm_120"] == {"registers": 69, "spill_bytes": 16}
