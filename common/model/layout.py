"""Offsets and shapes of every tensor in the buffers of a kernel: weights, cache, scratch, state and waits.

This is the only table of offsets. Python packs and reads by it, and `declare` writes it into the kernel's text
as compile-time constants. Offsets and sizes are in elements: bf16 for weights and cache, fp32 for scratch,
32-bit words for state. A matrix takes the rows of its format (`common.model.format`).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from common.errors import LabError
from common.lazy import torch
from common.model import stages
from common.model.expressions import SHAPES, Scratch, evaluate
from common.model.format import Format, read_kv_format, whole
from common.model.shapes import LARGEST, Model
from common.model.slot import PLAIN, Slot
from common.model.stages import FIRST, LAST, LAYER, STAGES, taps

ALIGN = 128  # elements; 256 bytes of bf16, so every tensor starts on a cache-line pair
MAX_BLOCKS = 1024  # largest grid: argmax has room for one partial result per block
MIN_CHUNK = 16  # fewest positions of a block in split-KV attention
MOMENTS = 3  # time stamps of a traced stage: at its start, at its end, and after the barrier behind it
WAIT_WORDS = 4  # report of a block whose wait timed out: stage + 1, layer, and the words it waited for
NOT_SENT = -1  # sentinel of every flag-in-data word: a NaN that no arithmetic of a GPU makes (mail.cuh)
LINE = 32  # 32-bit words of one 128-byte line; words that blocks poll or add to never share a line
FORWARD = ("template <int Bits, int Group, bool Real, bool Zeros, bool Half> struct Scaled;",)


def _pack(
    shapes: Mapping[str, tuple[int, ...]], start: int = 0, form: Format = PLAIN, align: int = ALIGN
) -> tuple[dict[str, Slot], int]:
    """Lay the shapes out one after another, each on an `align` boundary; also returns the end. form: of matrices."""
    slots, end = {}, start
    for name, shape in shapes.items():
        slots[name] = Slot(end, shape, form if len(shape) == 2 else PLAIN)
        end += whole(slots[name].size, align)
    return slots, end


class Layout:
    """Offsets of every tensor of one model.

    weights  `embed`, then `layers` equal blocks of the layer tensors (`layer_weights`, one `layer_stride` apart),
             then `final_norm` and `lm_head` (the same slot as `embed` when tied and bf16). A vector that the model
             lacks by its traits has no elements.
    cache    [layer][key, value][kv_head][position][head_dim], the last a row in the model's kv_format
    scratch  for each token of a step, `step_size` apart: the tap of every stage and layer (`common.model.stages`),
             never reused within a step. A stage writes its result there in every launch, so the validated kernel is the
             timed one.
             `rope` holds cos, then sin, of the position's head_dim/2 angles. `partial` holds one pair (value, index
             bits) per block for argmax. `workspace` is for variants that need room between stages. `seen`, for
             sampling, has a mark for each id of the vocabulary. Then come the `regions` of the stack's variants, and
             with trace=True `trace`: 64-bit time stamps [stage][layer][block][moment] (trace.cuh).
    state    position, prompt_length, token, the accepted drafts of a step, the words of the grid barriers, the turn,
             the token ids (behind those that are known, drafts), and the settings of a sampler.
    waits    WAIT_WORDS 32-bit words per block. The host can read them after the kernel has trapped.
    """

    def __init__(self, model: Model, scratch: Scratch | None = None, trace: bool = False, tokens: int = 1) -> None:
        """scratch: regions of variants, see `common.stacks.entry`. tokens: of a step, at neighbouring positions.

        Raises LabError for an impossible shape.
        """
        m = self.model = model
        matrices, form, head = m.layer_matrices, *m.formats
        self.tied = m.tied and not head.scaled  # the LM head is the embedding
        first, end = _pack({"embed": (m.vocab, m.hidden)})  # bf16
        self.layer_weights, end_of_layer = _pack(
            {
                "input_norm": (m.hidden,),
                "qkv": matrices["qkv"],
                "qkv_bias": ((m.query + 2 * m.kv) * m.qkv_bias,),
                "q_norm": (m.head_dim * m.qk_norm,),
                "k_norm": (m.head_dim * m.qk_norm,),
                "o": matrices["o"],
                "post_norm": (m.hidden,),
                "gate": matrices["gate"],
                "up": matrices["up"],
                "down": matrices["down"],
            },
            end,
            form,
        )
        self.layer_stride = end_of_layer - end
        self._formats = form, head
        last: dict[str, tuple[int, ...]] = {"final_norm": (m.hidden,)}
        if not self.tied:
            last["lm_head"] = (m.vocab, m.hidden)
        tail, self.weights_size = _pack(last, end + m.layers * self.layer_stride, head)
        self.global_weights = first | tail
        if self.tied:
            self.global_weights["lm_head"] = first["embed"]

        self.cache = Slot(0, (m.layers, 2, m.kv_heads, m.positions, m.head_dim), read_kv_format(m.kv_format))

        first, end = _pack(taps(FIRST, m) | {"rope": (2, m.head_dim // 2)})
        self.first_layer_tap = end
        self.layer_scratch, end_of_layer = _pack(taps(LAYER, m), end)
        self.layer_scratch_stride = end_of_layer - end
        fixed, end = _pack(
            taps(LAST, m)
            | {
                "partial": (MAX_BLOCKS, 2),
                "workspace": (m.heads * -(-m.positions // MIN_CHUNK) * (m.head_dim + 2),),
                "seen": (m.vocab,),
            },
            end + m.layers * self.layer_scratch_stride,
        )
        self.regions, end = _pack(self._shapes(scratch or {}), end)
        stamps: dict[str, tuple[int, ...]] = {"trace": (len(STAGES), m.layers, MAX_BLOCKS, MOMENTS, 2)}
        tail, self.step_size = _pack(stamps if trace else {}, end)
        self.tokens, self.scratch_size = tokens, tokens * self.step_size
        self.global_scratch = first | fixed | self.regions | tail

        words = {
            "position": 1,  # where the token of the next step is
            "prompt_length": 1,  # ids below this are given, not chosen
            "token": 1,  # last choice of argmax
            "accepted": 1,  # drafts of the last step that the kernel would have chosen
            "arrived": LINE,
            "epoch": LINE,
            "head": LINE,  # for an LM head that chooses the token without a barrier: best choice (64 bits), blocks done
            "turn": 1,  # steps since the reset, by kernels that need it; never put back with the position
            "ids": m.positions + 1,  # ids[p] is the token at position p
            "sampling": LINE,
        }
        self.state, self.state_size = _pack({name: (count,) for name, count in words.items()}, align=LINE)

    def _shapes(self, scratch: Scratch) -> dict[str, tuple[int, ...]]:
        """The shapes of `scratch` for this model."""
        values = {name: getattr(self.model, name) for name in SHAPES}
        values |= {"max_blocks": MAX_BLOCKS, "taps": self.model.layers * self.layer_scratch_stride}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, sizes in scratch.items():
            try:
                shape = shapes[name] = tuple(evaluate(size, values) for size in sizes)
            except ZeroDivisionError:
                raise LabError(
                    f"scratch.{name} is {list(sizes)}, a division by 0 for model {self.model.name}",
                    "give a divisor that is not 0",
                ) from None
            turns = shape[0]  # the counter of steps comes to 0 again, and would meet its neighbor's place
            if turns < 2 or turns & (turns - 1) or min(shape) < 1 or prod(shape) > LARGEST:
                raise LabError(
                    f"scratch.{name} is {list(shape)} for model {self.model.name}",
                    "give a power of 2 of turns, 2 or more, and sizes of at least 1",
                )
        return shapes

    @property
    def scaled(self) -> bool:
        """True if matrices or the KV cache are in a format below bf16."""
        return any(form.scaled for form in (*self._formats, self.cache.format))

    def weight(self, name: str, layer: int | None = None) -> Slot:
        """The slot of a weight tensor, in bf16 elements; `layer` for a layer's own tensors."""
        if layer is None:
            return self.global_weights[name]
        return self.layer_weights[name].at(layer * self.layer_stride)

    def tensors(self) -> Iterator[tuple[str, int | None]]:
        """(name, layer) of every weight tensor; the layer is None outside the layers. A tied head has none."""
        yield from ((name, None) for name in self.global_weights if name != "lm_head" or not self.tied)
        present = [name for name, slot in self.layer_weights.items() if slot.size]
        yield from ((name, layer) for layer in range(self.model.layers) for name in present)

    def taps(self) -> Iterator[tuple[str, int | None]]:
        """(stage, layer) of every tap in the order of a step; the layer is None outside the layers.

        Includes `rope`, a second result of embed.
        """
        yield from ((stage, None) for stage in (*taps(FIRST, self.model), "rope"))
        yield from ((stage, layer) for layer in range(self.model.layers) for stage in taps(LAYER, self.model))
        yield from ((stage, None) for stage in taps(LAST, self.model))

    def tap(self, stage: str, layer: int | None = None) -> Slot:
        """The slot in scratch of the result of `stage`, in fp32 elements."""
        if layer is None:
            return self.global_scratch[stage]
        return self.layer_scratch[stage].at(layer * self.layer_scratch_stride)

    @property
    def bytes(self) -> int:
        """Bytes of weights, cache, scratch and state together: a kernel's memory."""
        return 2 * (self.weights_size + self.cache.size) + 4 * (self.scratch_size + self.state_size)

    def check_memory(self) -> None:
        """Raise LabError if this machine has too little memory for weights, cache and the rest."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if self.bytes > memory:
            weights, cache = f"{2 * self.weights_size / 1e9:,.1f}", f"{2 * self.cache.size / 1e9:,.1f}"
            raise LabError(
                f"model {self.model.name} needs {self.bytes / 1e9:,.1f} GB, {weights} of them for weights and "
                f"{cache} for the KV cache, and this machine has {memory / 1e9:,.1f} GB of memory",
                "choose a smaller model, or fewer model.positions",
            )

    def check_room(self, position: int, steps: int) -> None:
        """Raise LabError unless `steps` steps from `position` on fit in the cache, with all their drafts accepted."""
        if position < 0 or steps < 1 or position + steps * self.tokens > self.model.positions:
            tokens = f" of {self.tokens} tokens" if self.tokens > 1 else ""
            raise LabError(
                f"{steps} steps{tokens} from position {position} on do not fit a cache of {self.model.positions} "
                "positions",
                f"decode at least one step that ends below position {self.model.positions}, or raise model.positions",
            )

    def initial_state(self, ids: Sequence[int], position: int, forced: int, barriers: int = 0) -> "torch.Tensor":
        """The state words before a run that decodes `position` next: int32, [state_size]; ids not given are -1.

        barriers: grid barriers passed before. After an even number of them `arrived` is 0 with either kind of barrier
        (barrier.cuh), and `epoch`, the counter of one kind, is that number; so is `turn`, as if each was a step.
        Raises LabError unless there are ids up to `position`, and no more than places for them.
        """
        assert barriers % 2 == 0
        at = self.state["ids"]
        if not 0 <= position < len(ids) <= at.size:
            raise LabError(
                f"{len(ids)} token ids were given, to decode position {position} of {self.model.positions}",
                f"give an id for each position up to that one, {at.size} at most",
            )
        state = torch.zeros(self.state_size, dtype=torch.int32)
        for counter in ("epoch", "turn"):
            state[self.state[counter].offset] = (barriers + 2**31) % 2**32 - 2**31
        state[self.state["position"].offset] = position
        state[self.state["prompt_length"].offset] = max(forced, position + 1)
        state[at.offset : at.offset + at.size] = -1
        state[at.offset : at.offset + len(ids)] = torch.tensor(ids, dtype=torch.int32)
        return state

    def declare(self) -> str:
        """The stages, the model and all offsets as C++ constants: the first lines of every flattened source.

        For a region NAME of scratch: `scratch_at::NAME`, its offset, and `NAME_size`, the elements of one turn.
        `Tap<Stage::qkv>` has `at`, the offset in scratch, `layer_stride` and `size`. A stage without a tap has no such
        type, so that code reading its tap does not compile.
        """
        m = self.model
        ints = ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab", "positions")
        lines = [f"constexpr int {name} = {getattr(m, name)};" for name in (*ints, "query", "kv")]
        lines += [f"constexpr double rope_theta = {m.rope_theta!r};", f"constexpr float rms_eps = {m.rms_eps!r}f;"]
        lines += [f"constexpr bool {name} = {str(getattr(m, name)).lower()};" for name in ("qk_norm", "qkv_bias")]
        lines += [f"constexpr double rope_{name} = {value!r};" for name, value in vars(m.rope_scaling).items()]

        def block(space: str, slots: dict[str, Slot], **extra: int) -> str:
            rows = [f"constexpr size_t {name} = {slot.offset};" for name, slot in slots.items()]
            rows += [f"constexpr size_t {name} = {value};" for name, value in extra.items()]
            return f"namespace {space} {{ {' '.join(rows)} }}"

        def tap(stage: str, slot: Slot, stride: int) -> str:
            offsets = f"static constexpr size_t at = {slot.offset}, layer_stride = {stride};"
            return f"template <> struct Tap<Stage::{stage}> {{ {offsets} static constexpr int size = {slot.size}; }};"

        others = {name: slot for name, slot in self.global_scratch.items() if name not in STAGES}
        turns = {f"{name}_size": slot.size // slot.shape[0] for name, slot in self.regions.items()}
        return "\n".join(
            [
                stages.declare(),
                f"namespace model {{ {' '.join(lines)} }}",
                *(FORWARD if self.scaled else ()),
                "struct Bf16;",
                f"using LayerFormat = {self._formats[0].codec};",
                f"using HeadFormat = {self._formats[1].codec};",
                f"using KvFormat = {self.cache.format.codec};",
                block("weight_at", self.global_weights | self.layer_weights, layer_stride=self.layer_stride),
                "template <Stage> struct Tap;",
                *(tap(name, slot, 0) for name, slot in self.global_scratch.items() if name in STAGES),
                *(tap(name, slot, self.layer_scratch_stride) for name, slot in self.layer_scratch.items()),
                block(
                    "scratch_at",
                    others,
                    workspace_size=others["workspace"].size,
                    layers=self.first_layer_tap,
                    step_size=self.step_size,
                    **turns,
                ),
                block("state_at", self.state),
                f"constexpr int max_blocks = {MAX_BLOCKS}; constexpr int line_words = {LINE}; "
                f"constexpr int wait_words = {WAIT_WORDS};",
            ]
        )
