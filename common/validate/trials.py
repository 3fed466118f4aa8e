"""Trials: shapes, settings and starts under which every loop of a kernel takes a second and a partial last turn.

A user's model need not have a row longer than one tile, a second chunk of positions, or a grid beyond 32 blocks. Code
that is not exercised is not proved, so every stack also runs on these: on a few in a plain validation, on all in a full
one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from common.model.shapes import Model
from common.validate.scenarios import Start
from common.validate.values import ORDINARY

GIVEN, LOW, HIGH = "given", "low", "high"  # the values of a stack's knobs: its own, or the ends of their ranges

# Grid barriers passed before. The epoch's sign changes after 2^31 of them, and it is 0 again after 2^32.
AGES = (120, 2**15 - 16, 2**31 - 6, 2**32 - 6)
OLD_TILES = (2**16 - 1, 2**31 - 1)  # tiles passed by a ring: an unsigned 32-bit counter holds more


@dataclass(frozen=True)
class Trial:
    """One kernel to build, and its test runs.

    covers  cases that other models do not exercise, for the report of a validation without it
    knobs   GIVEN, LOW or HIGH
    plain   True if it is part of a plain validation
    tiles   number of tiles, roughly, that a ring of bulk copies has passed before each launch
    races   True to run on the PTX device with the race detector, which finds a race under any schedule
    """

    name: str
    covers: str
    model: Model
    threads: int
    blocks: int
    starts: tuple[Start, ...]
    weights: str = ORDINARY
    knobs: str = GIVEN
    plain: bool = False
    tiles: int = 0
    races: bool = False

    def like(self, model: Model) -> "Trial":
        """The same trial with the traits and formats of `model`."""
        return replace(self, model=self.model.like(model))

    def with_room(self, tokens: int) -> "Trial":
        """The same trial with positions for `tokens` tokens in each step: as many for all trials of its model."""
        alike = [trial for trial in TRIALS if trial.model.shape == self.model.shape]
        most = max(start.steps for trial in (self, *alike) for start in trial.starts)
        positions = self.model.positions + most * (tokens - 1)
        return replace(self, model=replace(self.model, positions=positions))


#                hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, positions, theta, eps, tied
WIDE = Model("wide", 1080, 520, 2, 4, 2, 200, 509, 320, 5e5, 1e-6, False)
# One layer, since many blocks make a step slow. With this eps a norm can be exact, and eps can decide it.
# All plain trials have the first, so that a stack is compiled once for them: just wide enough for a second turn of each
# loop of a warp over a row or a head, and for a third chunk of positions.
SEVERAL = Model("several turns", 288, 136, 1, 6, 2, 40, 251, 264, 5e5, 2.0**-5, False)
# Its columns are as many as one warp takes, so that no lane is left over.
GRID = Model("one layer", 128, 200, 1, 6, 2, 16, 509, 136, 5e5, 2.0**-5, False)
# A lane's second turn may store to another lane's place; in packets of 16 bytes a head has 9 of 16 lanes.
# A third layer, as places of two may be shared by mistake; one KV head, so that its blocks share its chunks. A tile has
# seven rows of 1032, whose terms warps exchange in turns, so two tiles are read at once.
NINE = Model("heads of 72", 96, 1032, 3, 4, 1, 72, 521, 136, 5e5, 2.0**-5, False)
HEADS = Model("large heads", 72, 104, 2, 2, 2, 264, 101, 1100, 1e6, 1e-5, False)
LONG = Model("long", 64, 72, 2, 2, 1, 64, 251, 16_400, 1e6, 1e-6, True)
# A row fits the smallest slot of a ring, 6 KB, so that every legal knob value works in this trial; a block's share of a
# matrix is larger than any prefetch.
WORDS = Model("many words", 24, 2824, 1, 2, 1, 8, 131_712, 16, 1e4, 1e-6, True)
# The last weights are gains, with no padding behind them.
SQUARE = Model("square", 128, 128, 3, 4, 4, 32, 128, 128, 1e6, 1e-6, True)
LEAST = Model("least", 8, 8, 1, 1, 1, 520, 2, 1, 1e4, 1e-6, False)

TRIALS = (  # fields in the order of Trial, then those that differ from its defaults
    Trial("wide",             "rows of several tiles, heads wider than a warp, several chunks of positions",
          WIDE,     96,   3, (Start(319), Start(127, steps=2)), tiles=OLD_TILES[0]),
    Trial("several turns",    "rows of two tiles, heads of 40, three chunks of positions",
          SEVERAL,  32,   3, (Start(263), Start(63, steps=2)), plain=True),
    Trial("many blocks",      "a grid of 33 blocks, barriers beyond 2^32, attention of several blocks to a head",
          SEVERAL,  32,  33, (Start(0, steps=2, barriers=AGES[3]), Start(255, steps=3)), plain=True),
    Trial("long prompt",      "a prompt of 22 ids that ends within a launch, 18 tokens in a row",
          SEVERAL,  32,   3, (Start(8, steps=18, given=14, barriers=AGES[3]),), plain=True),
    *(Trial(kind, kind, SEVERAL, 32, blocks, (start, Start(0)), weights=kind, plain=True)
      for kind, blocks, start in (  # on few blocks each has the token in some of these steps, the last one, too
          ("negative logits", 4, Start(3, 2)),
          ("low scores",      4, Start(40, 2, history="opposite keys")),
          ("large gates",     4, Start(17, 2, history="one side")),
          ("small inputs",    4, Start(9, 2, history="nothing")),
          ("half way",        4, Start(31, 2)),
          ("twins",           5, Start(20, 2)),
          ("ties",            4, Start(33, 2, history="equal scores")),
      )),
    Trial("equal rows",       "nine equal logits in one warp",
          SEVERAL,  32,   1, (Start(7, 2),), weights="ties", plain=True),
    Trial("late maximum",     "the largest score in the third chunk of positions",
          SEVERAL,  32,   5, (Start(262, 2, history="late keys"),), plain=True),
    Trial("wide, low scores", "low scores in one warp of several, the others without a position",
          WIDE,     96,   3, (Start(1, 2, history="opposite keys"), Start(0)), weights="low scores",
          tiles=OLD_TILES[0]),
    Trial("wide, knobs low",  "the low ends of knobs on wide rows, one block of one warp",
          WIDE,     32,   1, (Start(63, 2), Start(128)), knobs=LOW, tiles=OLD_TILES[0]),
    Trial("wide, knobs high", "the high ends of knobs on wide rows",
          WIDE,     64,  16, (Start(64), Start(318, 2)), knobs=HIGH),
    Trial("large heads",      "heads of 264, blocks of 9 warps, the best in each, position 1024",
          HEADS,   288,   2, (Start(1, 18), Start(1023, 2)), weights="next word"),
    Trial("long",             "positions beyond 4096, 8192 and 16384",
          LONG,     64,  33, (Start(1024), Start(81), Start(4095, 2), Start(8191, 2, history="late keys"),
                              Start(16_399)), knobs=LOW),
    Trial("many words",       "a vocabulary beyond 2^17, rows of 2824",
          WORDS,    64,   7, (Start(0, 2),), weights="last words"),
    Trial("square",           "sizes that are all equal, three layers, one block, equal logits in its warps",
          SQUARE,  160,   1, (Start(118, 10),), weights="ties", knobs=HIGH, tiles=OLD_TILES[1]),
    Trial("least",            "one layer, one head of 520, one position",
          LEAST,    64,  33, (Start(),), knobs=LOW),
    Trial("many tokens",      "130 tokens in a launch, a prompt of 40 ids",
          GRID,     32,   2, (Start(0, 130, given=40, barriers=2**16 - 64),), knobs=HIGH),
    Trial("65 blocks",        "65 blocks, 40 tokens in a row, equal logits in them",
          GRID,     32,  65, (Start(7, 40, barriers=AGES[2]),), weights="ties", knobs=HIGH),
    Trial("132 blocks",       "132 blocks",
          NINE,     64, 132, (Start(0, 4, barriers=AGES[1]),)),
    Trial("264 blocks",       "264 blocks",
          NINE,     64, 264, (Start(71, 2, barriers=AGES[0]),), knobs=LOW),
    Trial("300 blocks",       "300 blocks",
          GRID,     32, 300, (Start(17, 3),), weights="ties", knobs=HIGH),
    *(Trial(f"races{name}", f"every pair of accesses{name}", NINE, 64, blocks, (Start(40, 2),), knobs=knobs, races=True)
      for name, knobs, blocks in ((", knobs low", LOW, 9),           # two blocks to a head, and one without a head
                                  (", knobs as given", GIVEN, 2))),  # a block with two heads, and two batches of words
)  # fmt: skip


def chosen(amount: str) -> tuple[Trial, ...]:
    """The trials of `validate.trials`: all, plain ones, or none."""
    return tuple(trial for trial in TRIALS if amount == "all" or (amount == "plain" and trial.plain))


def not_exercised(done: Iterable[Trial]) -> tuple[str, ...]:
    """Cases (`Trial.covers`) that a validation of only `done` has not exercised."""
    known = tuple(done)
    return tuple(trial.covers for trial in TRIALS if trial not in known)
