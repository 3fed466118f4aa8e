"""The arms of `experiment=rivals`: each decodes one sequence greedily, from the weights of the lab."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from common.errors import LabError
from experiments.engines.race import Arrived, Generate, Ran, Workload, judged, timed, timed_session
from experiments.engines.torch_step import SHOWN, TorchSession, TorchStep
from experiments.engines.transformers_model import rounding

MORE = "batches, sampling, other architectures"
GRAPH = "a CUDA graph needs a GPU"


@dataclass(frozen=True)
class Arm:
    """An engine. run: its race; package: whose version it has.

    settings: the best that are known for one sequence; also: what it does that the others do not. why_gpu: why it does
    not run on a CPU.
    """

    run: Callable[[Workload], Ran]
    package: str
    settings: str
    also: str
    why_gpu: str = ""


def torch_step(work: Workload, capture: bool = False, compiled: bool = False) -> Ran:
    """A step in plain torch. capture: into a CUDA graph, which is then replayed; compiled: by torch.compile.

    Judged in float32, as the tolerances are; its race is in bf16 on a GPU. Raises Mismatched, see `judged`.
    """
    lab = work.lab

    def step(positions: int, dtype: torch.dtype) -> TorchStep:
        made = TorchStep(lab.layout, work.weights, positions, dtype, compiled)
        if capture:
            made.capture()
        return made

    def opened(prompt: tuple[int, ...]) -> Generate:
        timed_step = step(len(prompt) + work.tokens, work.dtype)

        def generate(arrived: Arrived) -> list[int]:
            timed_step.feed(prompt)
            found = [timed_step.token.clone()]
            arrived(1)
            for _ in range(work.tokens - 1):
                timed_step.replay()
                found.append(timed_step.token.clone())
            return torch.cat(found).tolist()

        return generate

    validated = judged(TorchSession(step(lab.model.positions, torch.float32), lab.layout), lab, SHOWN)
    return replace(timed(opened, work), validated=validated)


def transformers_generate(work: Workload, static: bool = False) -> Ran:
    """`generate` of transformers. static: its cache has a fixed size; on a GPU transformers then compiles the step."""
    model = work.transformers_model()

    def opened(prompt: tuple[int, ...]) -> Generate:
        ids = torch.tensor([prompt], device=work.device)
        options: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
        positions, never = len(prompt) + work.tokens if static else None, torch.zeros_like(ids[:, 0], dtype=torch.bool)

        @torch.no_grad()
        def generate(arrived: Arrived) -> list[int]:
            def after_each(so_far: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
                if so_far.shape[1] == len(prompt) + 1:
                    arrived(1)
                return never

            if work.device == "cpu":  # float32, but for its cache
                options["past_key_values"] = rounding(model.config, positions=positions)
            elif static:
                options["cache_implementation"] = "static"
            found = model.generate(ids, max_new_tokens=work.tokens, stopping_criteria=[after_each], **options)
            return found[0, len(prompt) :].tolist()

        return generate

    return timed(opened, work)


def triton_kernels(work: Workload) -> Ran:
    """The kernels of `triton_arm`: as a CUDA graph; without a GPU their PTX is executed."""
    from experiments.engines.triton_arm.session import TritonSession

    if work.device == "cuda" and not torch.cuda.is_available():
        raise LabError("Triton needs torch for CUDA to reach the GPU", "make .venv with TORCH=cuda")
    lab = work.lab
    device: Any = lab.device if lab.config.ptx else None
    with closing(TritonSession(lab.layout, lab.packed.flat, device)) as session:
        validated = judged(session, lab)
        return replace(timed_session(session, work), peak_bytes=session.layout.bytes, validated=validated)


ARMS: Mapping[str, Arm] = {
    "torch": Arm(torch_step, "torch", "sdpa over a cache of fixed size; a launch for each operation", "-"),
    "torch in a CUDA graph": Arm(
        partial(torch_step, capture=True), "torch", "the same; a graph for each token", "-", GRAPH
    ),
    "torch.compile": Arm(
        partial(torch_step, compiled=True),
        "torch",
        "inductor, max-autotune, static shapes; a layer at a time",
        "-",
        "torch.compile needs a GPU: for a CPU it compiles other code, and takes minutes",
    ),
    "torch.compile in a CUDA graph": Arm(
        partial(torch_step, compiled=True, capture=True), "torch", "the same; a graph for each token", "-", GRAPH
    ),
    "Triton": Arm(
        triton_kernels,
        "triton",
        "six launches a layer and three more, a graph for each token; attention does not divide a head's positions",
        "-",
    ),
    "transformers": Arm(transformers_generate, "transformers", "sdpa, growing cache", f"lengths that change, {MORE}"),
    "transformers with a static cache": Arm(
        partial(transformers_generate, static=True),
        "transformers",
        "sdpa, static cache; on a GPU compiled and as CUDA graphs",
        MORE,
    ),
}
