"""Chat with a random checkpoint on a CPU, by lines from a pipe."""

import io
import json
import os
import re
import signal

import pytest
from trained import save_checkpoint, words

from experiments import chat
from experiments.generation.engine import Engine

pytestmark = pytest.mark.cpu


@pytest.fixture
def talk(tmp_path, cpu_cache, seed, monkeypatch, capsys):
    """talk(lines, *overrides): the exit code, what was printed, and the notes."""

    def talk_(lines, *overrides):
        where = [f"weights={tmp_path}/model", f"cache={cpu_cache}", f"results={tmp_path}/r.jsonl", "device=ptx"]
        typed = b"".join(line if isinstance(line, bytes) else f"{line}\n".encode() for line in lines)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), "utf-8"))
        code = chat.main([*where, "max_tokens=8", f"seed={seed}", *overrides])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return talk_


def kept(notes: str) -> list[tuple[int, int]]:
    """Tokens of each answer's prompt, and the ones of them that were in the KV cache."""
    said = r"^\d+ tokens.*; prompt of (\d+) tokens, (\d+) of them in the KV cache before$"
    return [(int(n), int(k)) for n, k in re.findall(said, notes, re.MULTILINE)]


def test_turns_variants_and_commands_over_one_cache(talk, tmp_path, seed):
    tokenizer = save_checkpoint(tmp_path / "model", seed)
    first, second = words(seed, 2), words(seed + 1, 3)
    saved = tmp_path / "talk.json"
    commands = ["/stats", "", "/stat", "/variant nothing", "/save", f"/save {tmp_path}/no/such/folder", "/variant all"]
    commands += ["/variant fused_head rows_per_warp", "/variant vec128 warps=2"]
    script = [
        *commands,
        first,
        "/variant fused_head rows_per_warp=2",
        second,
        f"/save {saved}",
        "/stats",
        f"/save {saved}",
        "/reset",
        first,
        "/help",
        "/quit",
    ]
    code, out, notes = talk([*script, "not asked"], "stop=false")
    assert code == 0, notes
    for part in ("nothing has been generated yet", "did you mean '/stats'", "unknown variant 'nothing'"):
        assert part in notes
    for part in ("write /save FILE", "cannot be written: No such file", "name one of them", "fused_head answers now"):
        assert part in notes
    for part in ("'rows_per_warp' is no knob; write knob=value", "unknown knob 'warps'"):
        assert part in notes
    assert "Traceback" not in notes

    found = json.loads(saved.read_text(encoding="utf-8"))
    assert found["variant"] == "fused_head"
    assert [message["role"] for message in found["messages"]] == ["user", "assistant"] * 2
    assert [message["content"] for message in found["messages"][::2]] == [first, second]
    answers = [message["content"] for message in found["messages"][1::2]]
    assert out == f"{answers[0]}\n{answers[1]}\n{answers[0]}\n"  # the third begins anew, with the first prompt

    begin = tokenizer.apply_chat_template(
        [{"role": "user", "content": first}], add_generation_prompt=True, tokenize=False, enable_thinking=True
    )
    read, sizes = len(tokenizer.encode(begin)), kept(notes)
    assert sizes[0] == (read, 0)
    assert sizes[1][1] in range(read, read + 8)  # where the tokenizer splits the answer as it was generated
    assert sizes[-1] == (read, read - 1)  # the same prompt after the reset
    assert f"{saved} exists; give another file" in notes


def test_a_chat_answers_as_its_template_asks(talk, tmp_path, seed, monkeypatch):
    tokenizer, requests = save_checkpoint(tmp_path / "model", seed), []
    stream = Engine.stream
    monkeypatch.setattr(
        Engine, "stream", lambda self, request, *more: requests.append(request) or stream(self, request)
    )
    assert talk(["a"], "thinking=false", "system=barrier", "temperature=0.8", "top_k=5", 'stop_strings=["end"]')[0] == 0
    want = (
        "<|im_start|>system\nbarrier<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        "<think>\n\n</think>\n\n"
    )
    assert tokenizer.decode(requests[0].ids) == want
    assert (requests[0].sampling.temperature, requests[0].sampling.top_k, requests[0].sampling.seed) == (0.8, 5, seed)
    assert (requests[0].stop_ids, requests[0].stop_strings, requests[0].max_tokens) == (frozenset({2}), ("end",), 8)


def test_a_full_context_is_said(talk, tmp_path, seed):
    save_checkpoint(tmp_path / "model", seed)
    long = "z" * 115
    code, out, notes = talk([long, long, "/reset", long], "max_tokens=1000", "stop=false")
    assert code == 0
    assert notes.count("the context is full; /reset begins anew") == 2
    assert re.search(
        r"error: the context is full: the conversation has \d+ tokens, the KV cache 160 positions; ", notes
    )
    half = len(out) // 2
    assert out[:half] == out[half:]  # the same again, after the reset


def test_a_line_that_is_no_text_does_not_end_the_chat(talk, tmp_path, seed):
    save_checkpoint(tmp_path / "model", seed)
    code, _, notes = talk([b"\xff\xfe\n", "a"])
    assert code == 0
    assert "error: the tokenizer refuses the text: " in notes
    assert len(kept(notes)) == 1


def test_ctrl_c_ends_the_answer_and_keeps_the_chat(talk, tmp_path, seed, monkeypatch):
    save_checkpoint(tmp_path / "model", seed)
    decode, pieces = Engine._decode, []

    def interrupted(self, steps, sampling):
        pieces.append(steps)
        if len(pieces) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return decode(self, 1, sampling)

    monkeypatch.setattr(Engine, "_decode", interrupted)
    before = signal.getsignal(signal.SIGINT)
    code, _, notes = talk(["a", "b"], "stop=false")
    assert code == 0
    assert re.findall(r"^(\d+) tokens", notes, re.MULTILINE) == ["2", "8"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("template", "argv", "message"),
    [
        (None, [], "has no chat template; use experiments.generate"),
        ("{{ raise_exception('never') }}", [], "the chat template refuses the messages: never"),
        ("", ["weights=synthetic", "model=tiny"], "synthetic weights have no tokenizer; give weights=DIR"),
        (
            "",
            ["temperature=-1"],
            "temperature=-1 is not a number in 0.001..1000; give temperature=X, or 0 for the largest logit",
        ),
        ("", ["variant=all"], "a chat runs one stack"),
        ("", ["experiment=ablation"], "experiment= has no effect on a chat"),
        ("", ["thinking=maybe"], "thinking=maybe is neither true nor false"),
    ],
)
def test_what_cannot_be_talked_to_is_refused(talk, tmp_path, template, argv, message):
    if template != "":
        save_checkpoint(tmp_path / "model", 1, template=template)
    code, out, notes = talk(["a"], *argv)
    assert (code, out) == (2, "")
    assert message in notes
    assert sum(line.startswith("error: ") for line in notes.splitlines()) == 1
