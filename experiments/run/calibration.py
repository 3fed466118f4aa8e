"""Calibration of `gptq` on a text, or on random ids for synthetic weights: the inputs of every matrix, in float64."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from common.cache.sources import sources_sha
from common.config.resolve import SYNTHETIC, check_ids
from common.config.run_config import RunConfig
from common.errors import LabError
from common.model.gptq import Calibration
from common.model.layout import Layout
from common.model.shapes import Model
from common.model.weights import PackedWeights
from experiments.run.tokenizer import tokenizer_of
from experiments.run.torch_decoder import TorchDecoder
from experiments.tables.progress import Progress

WINDOW = 512  # tokens decoded together, which see each other; fewer where the cache has fewer positions
WINDOWS = 16  # taken from a longer text, evenly spaced
SOURCES = ("experiments/run/calibration.py", "experiments/run/torch_decoder.py")  # that sum the inputs
LEAST = 256  # tokens of a text: fewer say little of the inputs


def calibration(config: RunConfig, show: Progress, model: Model, layout: Layout, packed: PackedWeights) -> Calibration:
    """The calibration of `model`, before it is quantized. show: gets a note and each layer.

    Raises LabError for a checkpoint without `calibration=`, and for a text that cannot be read or is too short.
    """
    size = min(WINDOW, model.positions)
    windows = torch.tensor(_ids(config, model, packed.folder, size * WINDOWS)).split(size)
    windows = windows[:: -(-len(windows) // WINDOWS)]

    def moments() -> Iterator[tuple[str, int | None, Tensor]]:
        show.note(f"calibrate on {sum(map(len, windows)):,} tokens, once for these weights")
        decoder = _Inputs(model, layout, packed.flat, len(windows[0]), torch.float64)
        for name, layer, found in decoder.moments(windows):
            show.detail(f"calibrate {name}{'' if layer is None else f', layer {layer + 1} of {model.layers}'}")
            yield name, layer, found

    sha, code = sha256(str([each.tolist() for each in windows]).encode()).hexdigest(), sources_sha(*SOURCES)
    return Calibration(sha, code, moments)


class _Inputs(TorchDecoder):
    """A decoder that sums x x^T over the inputs x of each matrix of a layer."""

    def multiply(self, x: Tensor, name: str, weights: dict[str, Tensor], bias: Tensor | None = None) -> Tensor:
        if name != "up":  # its inputs are those of gate
            self.sums[name] = self.sums.get(name, 0) + x.T @ x
        return super().multiply(x, name, weights, bias)

    def moments(self, windows: Sequence[Tensor]) -> Iterator[tuple[str, int | None, Tensor]]:
        """Yield as of `Calibration.moments`. windows: ids of texts, int64."""
        states = [self.weight("embed")[ids].to(self.dtype) for ids in windows]
        for layer in range(self.model.layers):
            self.sums: dict[str, Tensor] = {}
            weights, everywhere = self.layer_weights(layer), self.everywhere
            states = [
                self.layer(x, self.cache[layer], weights, self.place(everywhere[: len(x)], len(x))) for x in states
            ]
            yield from ((name, layer, self.sums[name.replace("up", "gate")]) for name in self.model.layer_matrices)
        last = self.norm(torch.cat(states), self.weight("final_norm").to(self.dtype))
        yield "lm_head", None, last.T @ last


def _ids(config: RunConfig, model: Model, folder: Path | None, count: int) -> tuple[int, ...]:
    """The ids of the text; for synthetic weights `count` random ones."""
    file = config.calibration
    if config.weights == SYNTHETIC:
        if file:
            raise LabError("calibration= has no effect on synthetic weights", "leave it out: their ids are random")
        random = torch.Generator().manual_seed(config.seed)
        return tuple(torch.randint(model.vocab, (count,), generator=random).tolist())
    if not file:
        raise LabError("gptq needs a text to calibrate on", "give calibration=FILE, like what the model will read")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"calibration={file} cannot be read: {error}", "give a text file in UTF-8") from None
    ids = tuple(tokenizer_of(folder, "calibration=", "give a format without gptq").encode(text).ids)
    check_ids(ids, model, "calibration=")
    if len(ids) < LEAST:
        raise LabError(f"calibration={file} has {len(ids)} tokens", f"give a text of {LEAST} or more")
    return ids
