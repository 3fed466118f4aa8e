"""The stop string of docs/use.md, with a checkpoint that says it."""

import json
import shlex

import pytest
from trained import save_checkpoint

from common import ROOT
from experiments import generate

pytestmark = pytest.mark.cpu
SAYS = " ab\n3."  # each token is followed by the next one, and the last by the first


def save_parrot(folder):
    """A checkpoint with a next token that depends on the last one alone; its tokenizer."""
    import torch
    from transformers import Qwen3ForCausalLM

    tokenizer = save_checkpoint(folder, 1)
    model = Qwen3ForCausalLM.from_pretrained(folder, tie_word_embeddings=False, dtype=torch.bfloat16)
    ids = [token for letter in SAYS for token in tokenizer.encode(letter)]
    assert len(ids) == len(SAYS)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_("norm" in name)
        for at, token in enumerate(ids):
            model.model.embed_tokens.weight[token, at] = 1
            model.lm_head.weight[ids[(at + 1) % len(ids)], at] = 1
    model.save_pretrained(folder)
    return tokenizer


def test_the_documented_line_stops_at_its_stop_string(tmp_path, cpu_cache, capsys):
    tokenizer = save_parrot(tmp_path / "model")
    lines = (ROOT / "docs" / "use.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("python -m experiments.generate") and "stop_strings=" in line)
    given = [word.replace("=DIR", f"={tmp_path / 'model'}") for word in shlex.split(line)[3:]]
    where = ["device=ptx", f"cache={cpu_cache}", f"results={tmp_path / 'r.jsonl'}"]

    assert generate.main([*given, *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_ids"] == tokenizer.encode("1. ")
    assert tokenizer.decode(found["ids"]) == "ab\n3."
    assert found["text"] == "ab"

    printed = [word for word in given if word != "json=true" and not word.startswith("prompt=")]
    assert generate.main([*printed, 'prompt="3.\\n ${HOME} "', *where]) == 0
    assert capsys.readouterr().out == "ab\n"

    (end,) = tokenizer.encode("a")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    for more, shown in (["stop=false"], "ab\n"), ([], "a\n"):
        assert generate.main([*printed, *more, 'prompt="3. "', *where]) == 0
        assert capsys.readouterr().out == shown
