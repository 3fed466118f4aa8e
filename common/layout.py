"""Where everything lies in the buffers a kernel gets: weights, cache, scratch, state and waits.

This is the only table of offsets. Python packs and reads by it, and `declare` writes it into the kernel's text
as compile-time constants. Offsets and sizes are in elements: bf16 for weights and cache, fp32 for scratch,
32-bit words for state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from common.errors import LabError
from common.model import LAYER_STAGES, STAGES, Model

if TYPE_CHECKING:
    import torch

ALIGN = 128  # elements; 256 bytes of bf16, so every tensor starts on a cache-line pair
MAX_BLOCKS = 1024  # largest grid: argmax has room for one partial result a block
MIN_CHUNK = 16  # shortest run of positions an attention that splits the cache may give to one block
MOMENTS = 3  # of a traced stage: it begins, it ends, the barrier behind it is passed
WAIT_WORDS = 4  # of a block that gave up waiting: stage + 1, layer, and the words it waited for
LINE = 32  # words of one 128-byte line: words that blocks poll or add to never share one


@dataclass(frozen=True)
class Slot:
    """One tensor: `offset` of its first element and its row-major `shape`."""

    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    def at(self, base: int) -> "Slot":
        return Slot(self.offset + base, self.shape)


def _pack(shapes: dict[str, tuple[int, ...]], start: int = 0) -> tuple[dict[str, Slot], int]:
    """Lay the shapes out one after another, each on an ALIGN boundary; also returns the end."""
    slots, end = {}, start
    for name, shape in shapes.items():
        slots[name] = Slot(end, shape)
        end += -(-prod(shape) // ALIGN) * ALIGN
    return slots, end


class Layout:
    """Offsets of every tensor of one model.

    weights  `embed`, then `layers` equal blocks of the layer tensors (`layer_weights`, one `layer_stride` apart),
             then `final_norm` and `lm_head` (the same slot as `embed` when tied).
             `qkv` holds the rows of q, then k, then v.
    cache    [layer][key, value][kv_head][position][head_dim]
    scratch  one fp32 tensor per stage and layer, never reused within a step: what a stage leaves there *is* its tap,
             so the kernel that is validated is the kernel that is timed.
             `rope` holds cos then sin of the position's head_dim/2 angles; `partial` one (value, index bits) pair a
             block for argmax; `workspace` belongs to whichever variant needs room between stages. With `trace` there
             is also `trace`: when each block began, ended and passed each stage, a 64-bit stamp each (trace.cuh).
    state    position, prompt_length, token, the barrier's words, and the token ids.
    waits    WAIT_WORDS 32-bit words a block, which the host can still read when the kernel has trapped (waiting.py).
    """

    def __init__(self, model: Model, trace: bool = False) -> None:
        m = self.model = model
        first, end = _pack({"embed": (m.vocab, m.hidden)})
        self.layer_weights, end_of_layer = _pack(
            {
                "input_norm": (m.hidden,),
                "qkv": (m.query + 2 * m.kv, m.hidden),
                "q_norm": (m.head_dim,),
                "k_norm": (m.head_dim,),
                "o": (m.hidden, m.query),
                "post_norm": (m.hidden,),
                "gate": (m.intermediate, m.hidden),
                "up": (m.intermediate, m.hidden),
                "down": (m.hidden, m.intermediate),
            },
            end,
        )
        self.layer_stride = end_of_layer - end
        last = {"final_norm": (m.hidden,)} | ({} if m.tied else {"lm_head": (m.vocab, m.hidden)})
        tail, self.weights_size = _pack(last, end + m.layers * self.layer_stride)
        self.global_weights = first | tail
        if m.tied:
            self.global_weights["lm_head"] = first["embed"]

        self.cache = Slot(0, (m.layers, 2, m.kv_heads, m.positions, m.head_dim))

        first, end = _pack({"embed": (m.hidden,), "rope": (2, m.head_dim // 2)})
        self.layer_scratch, end_of_layer = _pack(
            {
                "input_norm": (m.hidden,),
                "qkv": (m.query + 2 * m.kv,),
                "qk_norm_rope": (m.query,),
                "attention": (m.query,),
                "o_proj": (m.hidden,),
                "post_norm": (m.hidden,),
                "gate_up": (m.intermediate,),
                "down": (m.hidden,),
            },
            end,
        )
        assert tuple(self.layer_scratch) == LAYER_STAGES
        self.layer_scratch_stride = end_of_layer - end
        tail, self.scratch_size = _pack(
            {
                "final_norm": (m.hidden,),
                "lm_head": (m.vocab,),
                "partial": (MAX_BLOCKS, 2),
                "workspace": (m.heads * -(-m.positions // MIN_CHUNK) * (m.head_dim + 2),),
            }
            | ({"trace": (len(STAGES), m.layers, MAX_BLOCKS, MOMENTS, 2)} if trace else {}),
            end + m.layers * self.layer_scratch_stride,
        )
        self.global_scratch = first | tail

        words = {
            "position": 1,  # of the token the next step decodes
            "prompt_length": 1,  # ids below this are given, not chosen
            "token": 1,  # what argmax chose last
            "arrived": LINE,
            "epoch": LINE,
            "head": LINE,  # of an LM head that chooses without a barrier: best (64 bits), blocks done
            "ids": m.positions + 1,  # ids[p] is the token at position p
        }
        self.state, end = {}, 0
        for name, count in words.items():
            self.state[name] = Slot(end, (count,))
            end += -(-count // LINE) * LINE
        self.state_size = end

    def weight(self, name: str, layer: int | None = None) -> Slot:
        """The slot of a weight tensor, in bf16 elements; `layer` for a layer's own tensors."""
        if layer is None:
            return self.global_weights[name]
        return self.layer_weights[name].at(layer * self.layer_stride)

    def tap(self, stage: str, layer: int | None = None) -> Slot:
        """The slot in scratch where `stage` leaves its result, in fp32 elements."""
        if layer is None:
            return self.global_scratch[stage]
        return self.layer_scratch[stage].at(layer * self.layer_scratch_stride)

    @property
    def bytes(self) -> int:
        """Of weights, cache, scratch and state together: the memory that a kernel needs."""
        return 2 * (self.weights_size + self.cache.size) + 4 * (self.scratch_size + self.state_size)

    def check_room(self, position: int, steps: int) -> None:
        """Raise LabError unless `steps` tokens from `position` on fit in the cache."""
        if position < 0 or steps < 1 or position + steps > self.model.positions:
            raise LabError(
                f"{steps} steps from position {position} on do not fit a cache of {self.model.positions} positions",
                f"decode 1 or more steps below position {self.model.positions}, or raise model.positions",
            )

    def initial_state(self, ids: Sequence[int], position: int, forced: int) -> "torch.Tensor":
        """The state words before a run that decodes `position` next: int32, [state_size]; ids not given are -1."""
        import torch  # here, so that the command line starts without it

        state = torch.zeros(self.state_size, dtype=torch.int32)
        state[self.state["position"].offset] = position
        state[self.state["prompt_length"].offset] = max(forced, position + 1)
        at = self.state["ids"]
        state[at.offset : at.offset + at.size] = -1
        state[at.offset : at.offset + len(ids)] = torch.tensor(ids, dtype=torch.int32)
        return state

    def declare(self) -> str:
        """The model and all offsets as C++ constants: the first lines of every flattened source."""
        m = self.model
        ints = ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab", "positions")
        lines = [f"constexpr int {name} = {getattr(m, name)};" for name in ints]
        lines += [f"constexpr double rope_theta = {m.rope_theta!r};", f"constexpr float rms_eps = {m.rms_eps!r}f;"]

        def block(space: str, slots: dict[str, Slot], **extra: int) -> str:
            rows = [f"constexpr size_t {name} = {slot.offset};" for name, slot in slots.items()]
            rows += [f"constexpr size_t {name} = {value};" for name, value in extra.items()]
            return f"namespace {space} {{ {' '.join(rows)} }}"

        return "\n".join(
            [
                f"namespace model {{ {' '.join(lines)} }}",
                block("weight_at", self.global_weights | self.layer_weights, layer_stride=self.layer_stride),
                block(
                    "scratch_at",
                    self.global_scratch | self.layer_scratch,
                    layer_stride=self.layer_scratch_stride,
                    workspace_size=self.global_scratch["workspace"].size,
                ),
                block("state_at", self.state),
                f"constexpr int max_blocks = {MAX_BLOCKS}; constexpr int line_words = {LINE}; "
                f"constexpr int wait_words = {WAIT_WORDS};",
            ]
        )
