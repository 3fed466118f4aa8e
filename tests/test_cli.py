"""Command line: help, errors, streams, progress; nothing here compiles a kernel."""

import io
import os
import signal
import subprocess
import sys

import pytest

from common import ROOT
from common.record.store import Store
from experiments import __main__ as experiments
from experiments.tables.progress import progress
from experiments.tables.result_table import COUNTED, ResultTable, show_result


def shell(module: str, *argv: str) -> subprocess.CompletedProcess[str]:
    # Without a GPU, whatever this machine has: the driver sees no device.
    return subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
    )


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
        (">/dev/full", "experiments --version", 2, 1),
        (">/dev/full", "experiments --help", 2, 1),
        (">&-", "experiments --version", 0, 0),
        ("<&- >&- 2>&-", "experiments --version", 0, 0),
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


@pytest.mark.parametrize("module", ["experiments", "profiles"])
def test_an_interrupt_while_modules_are_imported_has_no_traceback(module, tmp_path):
    (tmp_path / "hydra.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job of a script ignores it
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


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


def test_a_name_that_stdout_cannot_say_is_escaped(tmp_path):
    Store(tmp_path / "r.jsonl").append({"kind": "note", "name": "\u00e4"})
    argv = [sys.executable, "-m", "experiments.show", "last", f"results={tmp_path}/r.jsonl"]
    done = subprocess.run(
        argv, cwd=ROOT, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("\\xe4  (note ")


def test_a_working_folder_that_is_gone_is_one_line(tmp_path):
    script = f"cd {tmp_path}; rmdir {tmp_path}; {sys.executable} -m experiments.show"
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


def test_a_multirun_whose_folder_cannot_be_made_is_one_line(tmp_path, capfd):
    (tmp_path / "file").touch()
    assert experiments.main(["-m", "threads=100,200", "device=ptx", f"results={tmp_path}/file/r.jsonl"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: the folder of a multirun, beside its records, cannot be made: Not a directory, ")


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
