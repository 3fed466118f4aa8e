"""Others that decode the same weights: one small adapter each, which runs where its package is installed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from common.errors import LabError
from experiments.rivals.transformers_model import qwen3
from experiments.run import Lab


@dataclass(frozen=True)
class Ran:
    """What a rival generated. first: seconds to the first token, prompt included; whole: seconds of all tokens."""

    ids: list[int]
    first: float
    whole: float
    peak_bytes: int | None

    @property
    def rate(self) -> float:
        """Tokens a second behind the first one."""
        return (len(self.ids) - 1) / (self.whole - self.first)


@dataclass(frozen=True)
class Task:
    """The same for all: prompt, number of new tokens, weights. gguf: of llama.cpp, which reads nothing else."""

    lab: Lab
    prompt: tuple[int, ...]
    tokens: int
    gguf: str | None

    @property
    def device(self) -> str:
        return "cpu" if self.lab.config.host else "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """bf16 on a GPU; on a CPU float32, where only the ids are of interest."""
        return torch.float32 if self.lab.config.host else torch.bfloat16

    @property
    def positions(self) -> int:
        return len(self.prompt) + self.tokens

    def theirs(self) -> Any:
        return qwen3(self.lab.model, self.lab.layout, self.lab.packed.flat, self.dtype, self.device)

    @cached_property
    def checkpoint(self) -> "TemporaryDirectory[str]":
        """A folder with the weights as transformers writes them, for engines that read files."""
        folder: TemporaryDirectory[str] = TemporaryDirectory()
        qwen3(self.lab.model, self.lab.layout, self.lab.packed.flat, torch.bfloat16).save_pretrained(folder.name)
        return folder


def timed(generate: Callable[[int], Sequence[int]], task: Task, ready: Callable[[], None] = lambda: None) -> Ran:
    """`generate(n)` returns n new ids for the task's prompt; it is warmed up, then asked for one, then for all.

    ready: called before each of the three, outside of the time.
    """

    def seconds(tokens: int) -> tuple[list[int], float]:
        ready()
        _sync(task)
        start = time.perf_counter()
        ids = list(generate(tokens))
        _sync(task)
        return ids, time.perf_counter() - start

    seconds(task.tokens)
    first = seconds(1)[1]
    ids, whole = seconds(task.tokens)
    return Ran(ids, first, whole, torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None)


def transformers_eager(task: Task) -> Ran:
    """transformers' own `generate`, nothing compiled."""
    return timed(_generator(task, task.theirs()), task)


def transformers_compiled(task: Task) -> Ran:
    """A static cache and torch.compile, which puts the step into a CUDA graph."""
    _need_gpu(task)
    model = task.theirs()
    model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    return timed(_generator(task, model, cache_implementation="static"), task)


def torch_graph(task: Task) -> Ran:
    """A step in plain torch, bf16, in a CUDA graph; on a CPU the step alone."""
    from experiments.rivals.torch_step import TorchStep

    weights = task.lab.packed.flat.to(task.device, task.dtype)
    step = TorchStep(task.lab.model, task.lab.layout, weights, task.positions)
    if task.device == "cuda":
        step.capture()

    def generate(tokens: int) -> list[int]:
        step.feed(task.prompt)
        found = [step.token.clone()]
        for _ in range(tokens - 1):
            step.replay()
            found.append(step.token.clone())
        return torch.cat(found).tolist()

    return timed(generate, task)


def vllm(task: Task) -> Ran:
    """vLLM, offline, one sequence."""
    package = _import("vllm", task)
    engine = package.LLM(
        model=task.checkpoint.name, dtype="bfloat16", skip_tokenizer_init=True, max_model_len=task.positions
    )

    def generate(tokens: int) -> list[int]:
        params = package.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        prompt = {"prompt_token_ids": list(task.prompt)}
        return list(engine.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids)

    return timed(generate, task)


def sglang(task: Task) -> Ran:
    """SGLang, offline, one sequence."""
    package = _import("sglang", task)
    engine = package.Engine(model_path=task.checkpoint.name, dtype="bfloat16", skip_tokenizer_init=True)

    def generate(tokens: int) -> list[int]:
        params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        return list(engine.generate(input_ids=list(task.prompt), sampling_params=params)["output_ids"])

    return timed(generate, task)


def tensorrt_llm(task: Task) -> Ran:
    """TensorRT-LLM's LLM interface, one sequence."""
    package = _import("tensorrt_llm", task)
    engine = package.LLM(model=task.checkpoint.name, dtype="bfloat16", skip_tokenizer_init=True)

    def generate(tokens: int) -> list[int]:
        params = package.SamplingParams(temperature=0, max_tokens=tokens, end_id=-1, detokenize=False)
        return list(engine.generate([list(task.prompt)], params)[0].outputs[0].token_ids)

    return timed(generate, task)


def llama_cpp(task: Task) -> Ran:
    """llama.cpp by its Python binding; the weights must have been converted to GGUF."""
    package = _import("llama_cpp", task)
    if not task.gguf or not Path(task.gguf).exists():
        raise LabError("llama.cpp reads GGUF only", "convert the checkpoint and give options.gguf=FILE")
    engine = package.Llama(task.gguf, n_gpu_layers=-1, n_ctx=task.positions, verbose=False)

    def generate(tokens: int) -> list[int]:
        engine.reset()
        stream = engine.generate(list(task.prompt), temp=0.0)
        return [next(stream) for _ in range(tokens)]

    return timed(generate, task)


RIVALS: dict[str, Callable[[Task], Ran]] = {
    "transformers eager": transformers_eager,
    "transformers static cache + compile": transformers_compiled,
    "torch step in a CUDA graph": torch_graph,
    "vLLM": vllm,
    "SGLang": sglang,
    "TensorRT-LLM": tensorrt_llm,
    "llama.cpp": llama_cpp,
}


def _generator(task: Task, model: Any, **extra: Any) -> Callable[[int], list[int]]:
    prompt = torch.tensor([task.prompt], device=task.device)

    def generate(tokens: int) -> list[int]:
        with torch.no_grad():
            found = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
                **extra,
            )
        return found[0, len(task.prompt) :].tolist()

    return generate


def _sync(task: Task) -> None:
    if task.device == "cuda" and torch.cuda.is_available():
        torch.cuda.synchronize()


def _need_gpu(task: Task) -> None:
    if task.device != "cuda":
        raise LabError("it needs a GPU", "run it with device=cuda")


def _import(name: str, task: Task) -> Any:
    _need_gpu(task)
    try:
        return __import__(name)
    except ImportError as error:
        raise LabError(f"{name} does not import: {error}", f"pip install {name.replace('_', '-')}") from None
