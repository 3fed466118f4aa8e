"""Adapters of engines that are not installed here, over made-up packages with the parts of the real ones they call.

Each made-up engine counts: the id after n is n + 1, so all of them must return the same ids for the same prompt.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from common.errors import LabError
from common.model.layout import Layout
from common.model.weights import hf_slots, load
from experiments.engines import adapters, torch_step, transformers_model
from experiments.engines.adapters import ENGINES, Generated, Workload
from experiments.suite import rivals

PROMPT, TOKENS = (5, 6, 7), 4
COUNTED = [8, 9, 10, 11]


@pytest.fixture
def lab(tiny, host_cache, seed) -> SimpleNamespace:
    packed = load("synthetic", tiny, None, host_cache, seed)[2]
    return SimpleNamespace(
        model=tiny, layout=Layout(tiny), packed=packed, config=SimpleNamespace(device=SimpleNamespace(name="host"))
    )


@pytest.fixture
def work(lab, tmp_path, monkeypatch) -> Workload:
    """On a GPU, as far as an adapter can tell; every length is decoded once."""
    lab.config.device.name = "cuda"
    monkeypatch.setattr(adapters, "WARM_UPS", 0)
    monkeypatch.setattr(adapters, "RUNS", 1)
    (tmp_path / "weights.gguf").touch()
    return Workload(lab, PROMPT, TOKENS, str(tmp_path / "weights.gguf"))


def following(prompt: list[int], tokens: int) -> list[int]:
    return [prompt[-1] + 1 + at for at in range(tokens)]


def read(folder: str, positions: int | None = None) -> None:
    """Files that an engine needs to find in its model's folder."""
    shape = json.loads((Path(folder) / "config.json").read_text())
    assert (shape["architectures"], shape["dtype"]) == (["Qwen3ForCausalLM"], "bfloat16")
    assert positions is None or positions >= len(PROMPT) + TOKENS


class VllmParams:
    def __init__(self, temperature: float, max_tokens: int, ignore_eos: bool, detokenize: bool) -> None:
        assert (temperature, ignore_eos, detokenize) == (0, True, False)
        self.tokens = max_tokens


class Vllm:
    def __init__(self, model: str, dtype: str, skip_tokenizer_init: bool, max_model_len: int) -> None:
        assert (dtype, skip_tokenizer_init) == ("bfloat16", True)
        read(model, max_model_len)

    def generate(self, prompts: dict[str, list[int]], sampling_params: VllmParams, use_tqdm: bool) -> list:
        ids = following(prompts["prompt_token_ids"], sampling_params.tokens)
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(ids))])]


class Sglang:
    def __init__(self, model_path: str, dtype: str, skip_tokenizer_init: bool) -> None:
        assert (dtype, skip_tokenizer_init) == ("bfloat16", True)
        read(model_path)

    def generate(self, input_ids: list[int], sampling_params: dict) -> dict:
        assert sampling_params.keys() == {"temperature", "max_new_tokens", "ignore_eos"}
        assert (sampling_params["temperature"], sampling_params["ignore_eos"]) == (0, True)
        return {"output_ids": following(input_ids, sampling_params["max_new_tokens"])}


class TensorrtParams:
    def __init__(self, temperature: float, max_tokens: int, end_id: int, detokenize: bool) -> None:
        assert (temperature, end_id, detokenize) == (0, -1, False)
        self.tokens = max_tokens


class Tensorrt:
    def __init__(self, model: str, dtype: str, skip_tokenizer_init: bool) -> None:
        assert (dtype, skip_tokenizer_init) == ("bfloat16", True)
        read(model)

    def generate(self, inputs: list[list[int]], sampling_params: TensorrtParams) -> list:
        outputs = [following(ids, sampling_params.tokens) for ids in inputs]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids)]) for ids in outputs]


class Llama:
    """Keeps what it has read, as the real one: a second prompt goes on after the first, unless it is reset."""

    def __init__(self, model_path: str, n_gpu_layers: int, n_ctx: int, verbose: bool) -> None:
        assert Path(model_path).suffix == ".gguf"
        assert n_gpu_layers == -1
        assert n_ctx >= len(PROMPT) + TOKENS
        self.known: list[int] = []

    def reset(self) -> None:
        self.known = []

    def generate(self, tokens: list[int], temp: float) -> Iterator[int]:
        assert temp == 0
        assert self.known == []
        self.known = list(tokens)
        while True:
            self.known.append(self.known[-1] + 1)
            yield self.known[-1]


PACKAGES = {
    "vLLM": ("vllm", {"LLM": Vllm, "SamplingParams": VllmParams}),
    "SGLang": ("sglang", {"Engine": Sglang}),
    "TensorRT-LLM": ("tensorrt_llm", {"LLM": Tensorrt, "SamplingParams": TensorrtParams}),
    "llama.cpp": ("llama_cpp", {"Llama": Llama}),
}


@pytest.mark.parametrize("engine", PACKAGES)
def test_an_engine_gets_the_prompt_and_returns_the_new_ids(engine, work, monkeypatch):
    package, parts = PACKAGES[engine]
    monkeypatch.setitem(sys.modules, package, SimpleNamespace(**parts))
    assert ENGINES[engine](work).ids == COUNTED


@pytest.mark.parametrize("engine", PACKAGES)
def test_an_engine_that_is_not_installed_says_so(engine, work, monkeypatch):
    package = PACKAGES[engine][0]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LabError, match=rf"{package} does not import: .*; pip install {package.replace('_', '-')}$"):
        ENGINES[engine](work)


def test_llama_cpp_without_its_weights_says_how_to_get_them(work, monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))
    for gguf in (None, f"{work.gguf}.gone"):
        with pytest.raises(LabError, match=r"only GGUF files; convert the checkpoint and give options.gguf=FILE"):
            ENGINES["llama.cpp"](Workload(work.lab, PROMPT, TOKENS, gguf))


def test_the_checkpoint_of_other_engines_has_the_weights_of_the_lab(work):
    folder = Path(work.checkpoint.name)
    stored, packed = load_file(folder / "model.safetensors"), work.lab.packed.flat
    for name, slot in hf_slots(work.lab.layout):
        want = packed[slot.offset : slot.offset + slot.size].view(slot.shape)
        if name in stored:
            assert torch.equal(stored[name], want), name
        else:
            assert name == "lm_head.weight"  # it is the embedding


def test_a_captured_step_is_replayed_for_every_token(lab, monkeypatch):
    """capture itself needs torch's CUDA: here it keeps the step, which a graph would repeat."""
    replayed = []

    def capture(step: torch_step.TorchStep) -> None:
        step.graph = SimpleNamespace(replay=lambda: replayed.append(None) or step.step())

    monkeypatch.setattr(torch_step.TorchStep, "capture", capture)
    monkeypatch.setattr(adapters, "_need_gpu", lambda work: None)
    work = Workload(lab, PROMPT, TOKENS, None)
    assert ENGINES["torch step in a CUDA graph"](work).ids == ENGINES["torch step"](work).ids
    assert len(replayed) == (len(PROMPT) + TOKENS - 1) + len(PROMPT)  # all tokens once, and the first alone once


def test_transformers_that_is_absent_or_too_old_is_one_line(lab, monkeypatch):
    monkeypatch.setattr(transformers_model, "hf_slots", lambda layout: [("new.weight", layout.weight("embed"))])
    with pytest.raises(LabError, match=r"misses \[.*\] and does not know \['new.weight'\]; use transformers 5"):
        transformers_model.causal_lm(lab.model, lab.layout, lab.packed.flat, torch.float32)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(LabError, match=r"transformers does not import: .*; pip install -e"):
        transformers_model.causal_lm(lab.model, lab.layout, lab.packed.flat, torch.float32)


def test_a_failure_inside_an_engine_costs_its_row(work, monkeypatch):
    def broken(work: Workload) -> Generated:
        raise RuntimeError("CUDA error:\nan illegal memory access")

    monkeypatch.setitem(ENGINES, "vLLM", broken)
    state = "failed: RuntimeError: CUDA error: an illegal memory access"
    assert rivals.attempt("vLLM", work, COUNTED) == {"state": state}


def test_ids_are_the_same_up_to_the_first_that_differs(work, monkeypatch):
    monkeypatch.setitem(ENGINES, "vLLM", lambda work: Generated([8, 9, 0, 11], 0.5, 2.0, 3_000_000))
    row = rivals.attempt("vLLM", work, COUNTED)
    assert (row["same ids"], row["first token ms"], row["tok/s"], row["peak MB"]) == ("2 of 4", 500, 2.0, 3.0)
