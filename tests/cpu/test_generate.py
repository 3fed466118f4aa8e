"""Generation from a checkpoint of transformers on the PTX device: the ids equal transformers'."""

import json
from pathlib import Path

import pytest
import torch
from sampled import sampled
from trained import save_tokenizer, words

from common.record.store import Store
from experiments.generate import main
from experiments.generation.engine import Engine
from experiments.generation.request import Request
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

pytestmark = pytest.mark.cpu
TOKENS = 40
TIE = 1e-5  # margin, in standard deviations of the logits, below which fp32 may choose either token

SHAPES = {  # family, hidden, heads, KV heads, head_dim, theta, tied
    "grouped queries, tied head": ("Qwen3", 64, 4, 2, 16, 1e6, True),
    "wide heads, theta 5,000": ("Qwen3", 48, 2, 1, 64, 5e3, False),
    "odd widths, untied head": ("Qwen3", 72, 6, 6, 24, 1e4, False),
}
OTHERS = {
    "Llama, scaled, tied": ("Llama", 64, 4, 2, 16, 1e4, True),
    "Llama, scaled, untied": ("Llama", 72, 3, 1, 24, 5e5, False),
    "Qwen2, tied": ("Qwen2", 56, 7, 1, 8, 1e6, True),
    "Qwen2, untied": ("Qwen2", 64, 4, 2, 16, 1e4, False),
    "Mistral": ("Mistral", 64, 4, 2, 24, 1e6, False),
}
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.fixture(params=[*sampled(SHAPES, 1), *sampled(OTHERS, 1)])
def checkpoint(request, tmp_path, seed):
    """A randomly initialised model with bf16 numbers as weights, saved; also the model itself, in fp32.

    Then a text, and the tokenizer, which is trained.

    Some random models repeat one token for ever, which would hide a stale token: the next one is taken then.
    """
    import transformers

    torch.manual_seed(seed)
    tokenizer, text = save_tokenizer(tmp_path / "model", 331), words(seed, 4)
    prompt = tokenizer.encode(text)
    family, hidden, heads, kv_heads, head_dim, theta, tied = (SHAPES | OTHERS)[request.param]
    scaled = SCALED | {"original_max_position_embeddings": 32} if family == "Llama" else {}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=331,
        hidden_size=hidden,
        intermediate_size=104,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": theta} | scaled,
        tie_word_embeddings=tied,
        max_position_embeddings=128,
        initializer_range=0.3,
        **({"sliding_window": None} if family == "Mistral" else {}),
    )
    following: set[int] = set()
    while len(following) < 6:
        model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():  # and not the buffers: rotary frequencies stay fp32
                weight.copy_((torch.randn_like(weight) if name.endswith("bias") else weight).bfloat16())
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False, eos_token_id=-1)
        following = set(ids[0, len(prompt) :].tolist())
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model", model, text, tokenizer


def greedy(model: torch.nn.Module, prompt: list[int], stored: torch.Tensor) -> tuple[list[int], list[float]]:
    """The next token by transformers after the prompt and after each new token, and its margin to the second best.

    stored: the kernel's cache. A key or value near the midpoint of two bf16 numbers may be rounded to the other one by
    fp32 arithmetic in another order, and some tokens later another id follows. So transformers continues with the
    kernel's entry, after a check that it is an adjacent bf16 number.
    """
    from transformers import DynamicCache

    class KernelCache(DynamicCache):
        position = 0

        def update(self, key_states, value_states, layer_idx, *args, **kwargs):
            entries = []
            for kind, own in enumerate((key_states, value_states)):
                entry = stored[layer_idx, kind, :, self.position].float()[None, :, None]
                rounding, noise = own.abs() * 2**-8, own.abs().max() * 1e-5
                assert ((entry - own).abs() <= rounding + noise).all(), (layer_idx, kind, self.position)
                entries.append(entry)
            return super().update(*entries, layer_idx, *args, **kwargs)

    cache, ids, margins = KernelCache(config=model.config), list(prompt), []
    with torch.no_grad():
        for position in range(len(prompt) + TOKENS - 1):
            cache.position = position
            logits = model(torch.tensor([[ids[position]]]), past_key_values=cache, use_cache=True).logits[0, -1]
            if position + 1 >= len(prompt):
                best = logits.topk(2)
                ids.append(int(best.indices[0]))
                margins.append(float(best.values[0] - best.values[1]) / float(logits.std()))
    return ids[len(prompt) :], margins


def test_ids_and_text_are_those_of_transformers(checkpoint, cpu_cache: Path, configured, tmp_path, seed, capsys):
    folder, model, text, tokenizer = checkpoint
    prompt = tokenizer.encode(text)
    where = [f"weights={folder}", f"cache={cpu_cache}", f"results={tmp_path}/records.jsonl", "model.positions=128"]
    where += [f"seed={seed}"]
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    what = [f'prompt="{quoted}"', f"max_tokens={TOKENS}", "stop=false"]
    assert main([*where, *what, "variant=baseline", "device=ptx", "json=true"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["variant"], found["device"], found["prompt_ids"]) == ("baseline", "ptx", prompt)
    assert found["record"]
    assert found["seconds"] >= found["first_token_s"] > 0
    assert found["text"] == tokenizer.decode(found["ids"], skip_special_tokens=True)
    assert main([*where, *what, "variant=baseline", "device=ptx", "top_k=5"]) == 0
    printed = capsys.readouterr()
    plain = tokenizer.decode(found["ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert printed.out == f"{plain}\n"
    assert f"{TOKENS} tokens, " in printed.err
    assert f"; seed {seed}\n" in printed.err
    drawn_by = {"temperature": 0, "top_k": 5, "top_p": 1, "repetition_penalty": 1, "seed": seed}
    assert Store(tmp_path / "records.jsonl").records()[-1]["sampling"] == drawn_by

    config = configured("variant=baseline", *where)
    with Engine(Setup(config, Quiet()), config.stacks[0]) as engine:
        pieces = engine.stream(Request(tuple(prompt), TOKENS))
        assert [token for piece in pieces for token in piece.ids] == found["ids"]
        want, margins = greedy(model, prompt, engine.session.cache.entries(0, engine.positions))
    clear = next((n for n, margin in enumerate(margins) if margin < TIE), TOKENS)
    assert clear >= 32, f"ties too early to compare 32 tokens: {margins}, seed {seed}"
    assert found["ids"][:clear] == want[:clear], seed
    assert len(set(want)) > 2, "the model repeats one token, which would hide a stale token"
