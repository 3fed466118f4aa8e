"""The command line as a user meets it: help, errors, tables, requests; nothing here compiles a kernel."""

import io
import json
import os
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from common.catalog import ROOT
from common.errors import LabError
from common.layout import Layout
from common.model import Model
from experiments import __main__ as experiments
from experiments import generate
from experiments.prediction.forecast import Forecast
from experiments.progress import progress
from experiments.table import COUNTS_ONLY, Fact, Row, Timed, show_json, show_tables

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
TINY = Model("tiny", 64, 160, 2, 4, 2, 32, 503, 64, 1e6, 1e-6, True)


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
    for part in (f"python -m {module}", "model: auto, odd, qwen3_0_6b", "variant: all, ", "threads: 256"):
        assert part in text
    assert "Hydra (https" not in text


def test_start_up_imports_nothing_heavy():
    heavy = ("torch", "cupy", "transformers", "pandas", "numpy", "matplotlib")
    code = (
        "import sys; from experiments.__main__ import main; import experiments.generate; main(['--help']);"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "argv", "said"),
    [
        ("experiments", ["variant=basline"], "did you mean 'baseline'?"),
        ("experiments", ["variant=baseline", "device=cuda"], "or use device=host"),
        ("experiments", ["threads=100"], "not a multiple of 32"),
        (
            "experiments",
            ["variant=baseline", "device=host", "results=/dev/null/records.jsonl"],
            "/dev/null/records.jsonl",
        ),
        ("experiments.generate", ["device=host"], "prompt_ids=[1,2,3]"),
    ],
)
def test_a_mistake_ends_the_process_with_2(module, argv, said, tmp_path):
    done = shell(module, *argv, f"cache={tmp_path}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_nothing_is_left_behind(tmp_path):
    before = sorted(os.listdir(ROOT))
    shell("experiments", "threads=100")
    assert sorted(os.listdir(ROOT)) == before


def test_plain_progress_has_no_control_characters():
    stream = io.StringIO()
    with progress(2, stream) as show:
        show.begin("compile baseline")
        show.detail("half way")
        show.note("a note [not markup]")
    assert stream.getvalue() == "compile baseline\na note [not markup]\n"


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


def rows(cuda: bool) -> list[Row]:
    def timed(verdict: str) -> tuple[Timed, ...]:
        times = (Timed(p, 1000.0 + p, (990.0 + p, 1010.0 + p), 953.2, 71.24, verdict) for p in (1, 200))
        return tuple(times) if cuda else ()

    facts = {arch: Fact(64 + i, 16 if i == 5 else 0) for i, arch in enumerate(ARCHS)}
    long = ("redundant_rmsnorm", "vec128", "atomic_barrier", "productive_spin", "fused_head", "multi_step")
    return [
        Row("baseline", (), "PASSED", "", 3.2e-7, "lm_head", 226, {64: 1_191_968_768}, 2_340, facts, timed("SAME")),
        Row("persistent", long, "PASSED", "", 1e-6, "attention", 113, {128: 1_191_968_768}, 0, facts, timed("FASTER")),
        Row("cp_async", ("cp_async",), "MISMATCH", "attention layer 3 [12] is 0.25, want 0.5", 0.25, "attention"),
    ]


def shown(width: int, cuda: bool) -> str:
    stream = io.StringIO()
    show_tables(rows(cuda), "tiny on a machine", "cuda" if cuda else "host", Console(file=stream, width=width))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
@pytest.mark.parametrize("cuda", [False, True])
def test_tables_fit_and_lose_nothing(width, cuda):
    text = shown(width, cuda)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for word in ("3.2e-07", "lm_head", "226", "113", "64/0", "69/16", "MISMATCH", "1.19", *ARCHS):
        assert word in words, word
    for name in ("redundant_rmsnorm", "productive_spin", "multi_step"):
        assert name in text
    timing = ("1001.0", "1200.0", "±1.00", "953", "71.2", "FASTER")
    assert all((word in words) == cuda for word in timing)


@pytest.mark.parametrize("width", [100, 160])
def test_a_host_table_says_that_it_shows_no_gpu_time(width):
    assert COUNTS_ONLY.split()[0] in shown(width, False)
    assert "not GPU time" in shown(width, False)
    assert "GPU time" not in shown(width, True)
    assert "us a token" not in shown(width, False)


def test_a_prediction_is_called_one():
    stream = io.StringIO()
    row = Row("vec128", ("vec128",), "PASSED", forecast=Forecast(("head_split",), 1890.4, -0.125))
    show_tables([row], "here", "host", Console(file=stream, width=200))
    head, cells = (stream.getvalue().splitlines()[at] for at in (1, 4))
    assert head.split("┃")[-2].split() == ["predicted", "us"]
    assert [cell.strip() for cell in cells.split("│")[-3:]] == ["head_split", "1,890", "-12.5 %"]
    assert "Predicted: a token of qwen3_0_6b at position 1" in stream.getvalue()


def test_wide_tables_are_not_split_without_need():
    assert shown(240, False).count("variant ") == 2 > shown(400, False).count("variant ")


def test_the_reason_stands_under_the_table():
    assert shown(100, True).splitlines()[-1] == "cp_async: MISMATCH attention layer 3 [12] is 0.25, want 0.5"


def test_only_what_passed_and_can_be_stands_in_a_table():
    def timed(verdict: str, *marks: str) -> Timed:
        return Timed(1, 100.0, (99.0, 101.0), 9532.0, 210.0, verdict, marks)

    impossible = Row("impossible", ("impossible",), "PASSED", timed=(timed("IMPLAUSIBLE"),))
    disturbed = Row("disturbed", ("disturbed",), "PASSED", timed=(timed("SAME", "2 other process(es) on the GPU"),))
    interrupted = Row("stopped", ("stopped",), "INTERRUPTED", "by hand")
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


def test_json_lines(capsys):
    show_json(rows(True))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["verdict"] for row in found] == ["PASSED", "PASSED", "MISMATCH"]
    assert found[0]["loads"] == {"64": 1_191_968_768}
    assert found[1]["timed"][1]["position"] == 200
    assert found[1]["facts"]["sm_120"] == {"registers": 69, "spill_bytes": 16}


class Counter:
    """A session whose model always chooses the token after the last one."""

    def __init__(self) -> None:
        self.layout = Layout(TINY)
        self.launches = 0

    def reset(self, ids, position, cache=None, forced=0) -> None:
        self.words = self.layout.initial_state(ids, position, forced)

    def run(self, steps: int = 1) -> None:
        self.launches += 1
        at = self.layout.state["ids"].offset
        for _ in range(steps):
            position = int(self.words[self.layout.state["position"].offset])
            if position + 1 >= int(self.words[self.layout.state["prompt_length"].offset]):
                self.words[at + position + 1] = self.words[at + position] + 1
            self.words[self.layout.state["position"].offset] = position + 1

    def state(self) -> torch.Tensor:
        return self.words.clone()


@pytest.mark.parametrize("step_by_step", [False, True])
@pytest.mark.parametrize(
    ("prompt", "max_tokens", "stops", "ids"),
    [
        ([7], 3, set(), [8, 9, 10]),
        ([50, 3, 20], 4, set(), [21, 22, 23, 24]),
        ([50, 3, 20], 4, {22, 24}, [21, 22]),
        ([50, 3, 20], 4, {3, 50, 20}, [21, 22, 23, 24]),  # stops count only once they are chosen
        ([1] * 64, 1, set(), [2]),  # the last position of the cache
    ],
)
def test_decode(prompt, max_tokens, stops, ids, step_by_step):
    session = Counter()
    assert generate.decode(session, prompt, max_tokens, frozenset(stops), step_by_step, lambda text: None) == ids
    assert (session.launches == 1) == (not step_by_step or len(prompt) + len(ids) == 2)


def test_a_prompt_must_leave_room():
    generate.check_room(3, 62, TINY)
    with pytest.raises(LabError, match=r"a prompt of 3 and max_tokens=63 need 65 positions of 64"):
        generate.check_room(3, 63, TINY)


@pytest.mark.parametrize(
    ("files", "stops"),
    [
        ({}, set()),
        ({"config.json": {"eos_token_id": 5}}, {5}),
        ({"config.json": {"eos_token_id": None}}, set()),
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {"eos_token_id": [6, 7]}}, {6, 7}),
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {}}, {5}),
    ],
)
def test_stop_ids(tmp_path, files, stops):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert generate.stop_ids(tmp_path) == stops


def test_a_tokenizer_is_loaded_or_missed(tmp_path):
    with pytest.raises(LabError, match="has no tokenizer"):
        generate.load_tokenizer(tmp_path)
    with pytest.raises(LabError, match="synthetic weights have no tokenizer"):
        generate.load_tokenizer(None)
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "once": 1, "upon": 2}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(tmp_path)
    assert generate.load_tokenizer(tmp_path).encode("upon once") == [2, 1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "give a prompt"),
        (["prompt_ids=[1]", "prompt=x"], "give a prompt"),
        (["prompt_ids=[]"], "empty"),
        (["prompt_ids=[-1]"], "prompt_ids=-1"),
        (["prompt_ids=[a]"], "prompt_ids=a"),
        (["prompt_ids=[1]", "max_tokens=0"], "max_tokens=0"),
        (["prompt_ids=[1]", "stop=maybe"], "stop=maybe"),
        (["prompt_ids=[1]", "max_token=3"], "did you mean 'max_tokens'?"),
        (["prompt_ids=[1]", "device=host", "threads=100"], "not a multiple of 32"),
    ],
)
def test_requests_that_are_refused(argv, said, capsys):
    assert generate.main(argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
