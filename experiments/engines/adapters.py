"""Adapters of inference engines: one function each, which runs if the engine's package is installed."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from common.devices.protocol import Session
from common.errors import LabError
from experiments.engines.judged import IDS, judged
from experiments.engines.transformers_model import causal_lm
from experiments.run.setup import Setup

WARM_UPS = 3  # runs before the first that counts: one compiles, one records a graph, one replays it
RUNS = 5


@dataclass(frozen=True)
class Generated:
    """Token ids of one engine. first: seconds until the first token, prompt included; whole: seconds for all tokens.

    validated: by what: IDS, or STAGES by `experiments.engines.judged`.
    """

    ids: list[int]
    first: float
    whole: float
    peak_bytes: int | None
    validated: str = IDS

    @property
    def rate(self) -> float:
        """Tokens per second after the first one."""
        return (len(self.ids) - 1) / (self.whole - self.first)


@dataclass(frozen=True)
class Workload:
    """Prompt, number of new tokens and weights, the same for every engine. gguf: weights file for llama.cpp."""

    lab: Setup
    prompt: tuple[int, ...]
    tokens: int
    gguf: str | None

    @property
    def device(self) -> str:
        return "cuda" if self.lab.config.device.name == "cuda" else "cpu"

    @property
    def dtype(self) -> torch.dtype:
        """bf16 on a GPU; float32 on a CPU, where only the ids are compared."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    @property
    def positions(self) -> int:
        return len(self.prompt) + self.tokens

    def transformers_model(self) -> Any:
        return causal_lm(self.lab.model, self.lab.layout, self.lab.packed.flat, self.dtype, self.device)

    @cached_property
    def checkpoint(self) -> "TemporaryDirectory[str]":
        """A folder with the weights in the format of transformers, for engines that read files."""
        folder: TemporaryDirectory[str] = TemporaryDirectory()
        causal_lm(self.lab.model, self.lab.layout, self.lab.packed.flat, torch.bfloat16).save_pretrained(folder.name)
        return folder


def timed(
    generate: Callable[[int], Sequence[int]], work: Workload, ready: Callable[[], None] = lambda: None
) -> Generated:
    """Time `generate(n)`, which returns n new ids for the prompt: for one token, and for all; medians of some runs.

    Before that it warms up, first for all tokens, so that caches and graphs have their final sizes. On a CPU only the
    ids count, and each runs once. ready: called before each run; its time is not counted.
    """
    warm_ups, runs = (WARM_UPS, RUNS) if work.device == "cuda" else (0, 1)

    def seconds(tokens: int) -> tuple[list[int], float]:
        ready()
        _sync(work)
        start = time.perf_counter()
        ids = list(generate(tokens))
        _sync(work)
        return ids, time.perf_counter() - start

    for tokens in (work.tokens, 1):
        for _ in range(warm_ups):
            seconds(tokens)
    whole, first = ([seconds(tokens) for _ in range(runs)] for tokens in (work.tokens, 1))
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None
    return Generated(whole[0][0], median(took for _, took in first), median(took for _, took in whole), peak)


def timed_session(session: Session, work: Workload) -> Generated:
    """Judge every stage of a session, then time it. Its resets before each run are no part of the time.

    Raises Mismatched, see `judged`.
    """
    prompt, slot = list(work.prompt), session.layout.state["ids"]
    validated = judged(session, work.lab)

    def generate(tokens: int) -> list[int]:
        session.run(len(prompt) + tokens - 1)
        return session.state()[slot.offset + len(prompt) :][:tokens].tolist()

    ran = timed(generate, work, lambda: session.reset(prompt, position=0, forced=len(prompt)))
    return replace(ran, peak_bytes=session.layout.bytes, validated=validated)


def transformers_eager(work: Workload, **options: Any) -> Generated:
    """`generate` of transformers, with more `options`; without torch.compile."""
    model, prompt = work.transformers_model(), torch.tensor([work.prompt], device=work.device)
    options |= {"attention_mask": torch.ones_like(prompt), "do_sample": False, "pad_token_id": 0}

    @torch.no_grad()
    def generate(tokens: int) -> list[int]:
        found = model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, **options)
        return found[0, len(work.prompt) :].tolist()

    return timed(generate, work)


def transformers_compiled(work: Workload) -> Generated:
    """`generate` of transformers with a static cache: it compiles the step itself, and replays it as a CUDA graph."""
    _need_gpu(work)
    return transformers_eager(work, cache_implementation="static")


def torch_graph(work: Workload) -> Generated:
    """`torch_step`, replayed as a CUDA graph."""
    _need_gpu(work)
    return torch_step(work, capture=True)


def torch_step(work: Workload, capture: bool = False) -> Generated:
    """A step in plain torch: bf16, on a CPU float32. capture: into a CUDA graph, which is then replayed."""
    from experiments.engines.torch_step import TorchStep

    weights = work.lab.packed.flat.to(work.device, work.dtype)
    step = TorchStep(work.lab.model, work.lab.layout, weights, work.positions)
    if capture:
        step.capture()

    def generate(tokens: int) -> list[int]:
        step.feed(work.prompt)
        found = [step.token.clone()]
        for _ in range(tokens - 1):
            step.replay()
            found.append(step.token.clone())
        return torch.cat(found).tolist()

    return timed(generate, work)


def triton_kernels(work: Workload) -> Generated:
    """The kernels of `triton_arm`: as a CUDA graph; on device=ptx their PTX is executed, else they are interpreted."""
    from experiments.engines.triton_arm.ptx import Target
    from experiments.engines.triton_arm.session import TritonSession

    if work.device == "cuda" and not torch.cuda.is_available():
        raise LabError("Triton needs torch for CUDA to reach the GPU", "make .venv with TORCH=cuda")
    lab, target = work.lab, None
    if options := lab.config.ptx:
        folder, arch = lab.config.cache / "kernels", int(options.arch.removeprefix("sm_"))
        target = Target(folder, arch, options.races, lab.config.seed, options.timeout_s, not lab.model.large)
    with closing(TritonSession(lab.layout, lab.packed.flat, work.device, target=target)) as session:
        return timed_session(session, work)


def vllm(work: Workload) -> Generated:
    """vLLM, offline, one sequence."""
    package = _import("vllm", work)
    engine = package.LLM(
        model=work.checkpoint.name, dtype="bfloat16", skip_tokenizer_init=True, max_model_len=work.positions
    )

    def generate(tokens: int) -> list[int]:
        params = package.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        prompt = {"prompt_token_ids": list(work.prompt)}
        return list(engine.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids)

    return timed(generate, work)


def sglang(work: Workload) -> Generated:
    """SGLang, offline, one sequence."""
    package = _import("sglang", work)
    engine = package.Engine(model_path=work.checkpoint.name, dtype="bfloat16", skip_tokenizer_init=True)

    def generate(tokens: int) -> list[int]:
        params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        return list(engine.generate(input_ids=list(work.prompt), sampling_params=params)["output_ids"])

    return timed(generate, work)


def tensorrt_llm(work: Workload) -> Generated:
    """TensorRT-LLM's LLM interface, one sequence."""
    package = _import("tensorrt_llm", work)
    engine = package.LLM(model=work.checkpoint.name, dtype="bfloat16", skip_tokenizer_init=True)

    def generate(tokens: int) -> list[int]:
        params = package.SamplingParams(temperature=0, max_tokens=tokens, end_id=-1, detokenize=False)
        return list(engine.generate([list(work.prompt)], params)[0].outputs[0].token_ids)

    return timed(generate, work)


def llama_cpp(work: Workload) -> Generated:
    """llama.cpp through its Python binding; the weights must have been converted to GGUF."""
    package = _import("llama_cpp", work)
    if not work.gguf or not Path(work.gguf).exists():
        raise LabError("llama.cpp reads only GGUF files", "convert the checkpoint and give options.gguf=FILE")
    engine = package.Llama(work.gguf, n_gpu_layers=-1, n_ctx=work.positions, verbose=False)

    def generate(tokens: int) -> list[int]:
        engine.reset()
        stream = engine.generate(list(work.prompt), temp=0.0)
        return [next(stream) for _ in range(tokens)]

    return timed(generate, work)


ENGINES: dict[str, Callable[[Workload], Generated]] = {
    "transformers static cache + compile": transformers_compiled,
    "torch step in a CUDA graph": torch_graph,
    "Triton kernels": triton_kernels,
    "transformers eager": transformers_eager,
    "torch step": torch_step,
    "vLLM": vllm,
    "SGLang": sglang,
    "TensorRT-LLM": tensorrt_llm,
    "llama.cpp": llama_cpp,
}


def _sync(work: Workload) -> None:
    if work.device == "cuda" and torch.cuda.is_available():
        torch.cuda.synchronize()


def _need_gpu(work: Workload) -> None:
    if work.device != "cuda":
        raise LabError("the engine needs a GPU", "run with device=cuda")


def _import(name: str, work: Workload) -> Any:
    _need_gpu(work)
    try:
        return __import__(name)
    except ImportError as error:
        raise LabError(f"{name} does not import: {error}", f"pip install {name.replace('_', '-')}") from None
