"""Stacks under test: every variant, the named stacks, and combinations that may interfere, in several orders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.compile.source import Source, build
from common.devices.protocol import Session
from common.model.shapes import Model
from common.stacks.catalog import Catalog, read_catalog
from common.stacks.stack import choose_stacks, ordered, with_needed
from common.validate.scenarios import Scenario
from common.validate.snapshot import Snapshot, bit_differences
from common.validate.verdict import Mismatch

CATALOG = read_catalog()


@dataclass(frozen=True)
class Composed:
    """Variants, innermost first, and the knobs that differ from their defaults."""

    names: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "+".join(self.names or ["baseline"]) + "".join(f",{key}={value}" for key, value in self.given.items())

    def source(self, model: Model, threads: int = 256) -> Source:
        stack = choose_stacks(CATALOG, "", self.names, self.given, threads)[0]
        return build([CATALOG.variants[name] for name in stack.variants], model, threads, stack.knobs)

    @property
    def root(self) -> "Composed":
        """The stack that it must equal bit for bit: the same without the variants that must not change a bit."""
        names = without_bit_equal(self.names, CATALOG)
        knobs = {knob.name for name in names for knob in CATALOG.variants[name].knobs}
        return Composed(names, {key: value for key, value in self.given.items() if key in knobs})


def without_bit_equal(names: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """The stack that `names` must equal bit for bit: the variants that may change a bit, and their requirements."""
    changing = (name for name in names if catalog.variants[name].why_not_bit_equal)
    kept = {needed for name in changing for needed in with_needed(name, catalog)}
    return tuple(name for name in names if name in kept)


def compare_bits(session: Session, parent: Session, scenarios: Iterable[Scenario]) -> Mismatch | None:
    """The first bit in which a kernel differs from its parent in taps, cache, ids, token or position; None if none."""
    for scenario in (each.on(session) for each in scenarios):
        for each in (session, parent):
            each.reset(scenario.ids, scenario.position, scenario.held, len(scenario.ids), scenario.barriers)
        for step in range(scenario.steps):
            session.run(1)
            parent.run(1)
            note = f"differs from its parent, step {step}, scenario: {scenario.name}"
            mismatch = next(bit_differences(Snapshot.at(session), Snapshot.at(parent), note), None)
            if mismatch:
                return mismatch
    return None


def _composed(*lists: str) -> list[Composed]:
    return [Composed(tuple(names.split())) for names in lists]


VARIANTS = [
    Composed((*variant.parent, name) if name != "baseline" else ()) for name, variant in CATALOG.variants.items()
]
NAMED = [Composed(stack.variants, stack.knobs) for stack in CATALOG.stacks.values()]
STACKS = [
    *NAMED,
    *(Composed(ordered(stack.names[::-1], CATALOG), stack.given) for stack in NAMED),
    *_composed(
        "head_split warp_split",  # products that follow one another without a grid barrier
        "warp_split head_split redundant_rmsnorm",
        "cp_async head_split",
        "smem_cache cp_async",  # one reads the vector, the other writes it
        "redundant_rmsnorm smem_cache fused_head",
        "fused_head smem_cache redundant_rmsnorm",
        "split_kv vec128",
        "split_kv l2_prefetch",  # a barrier inside attention
        "vec128 productive_spin atomic_barrier split_kv",
        "multi_step fused_head",  # the token loop without the argmax stage
        "joint_heads split_kv vec128",  # a query for every chunk, the token's entry in the last one
        "by_value multi_step fused_head joint_heads redundant_rmsnorm warp_split l2_prefetch",
        "vec128 atomic_barrier productive_spin folded_norm fused_head multi_step joint_heads by_value",
        "joint_heads folded_norm by_value bulk_ring",  # values that come while the loader runs ahead
        "vec128 joint_heads folded_norm by_value value_token counted_sums",  # sums, and no barrier between steps
        "multi_step folded_norm fused_head joint_heads by_value l2_prefetch counted_sums cp_async",
        "joint_heads by_value bulk_ring columns value_token",  # steps that no grid barrier separates
        "bulk_ring multi_step smem_cache",
        "joint_heads by_value bulk_ring columns multi_step",  # a residual stream and places for parts, kept over steps
        "bulk_ring split_kv vec128 columns smem_cache atomic_barrier",
        "joint_heads multi_step bulk_ring tensor_rows by_value columns",  # tensor_rows below columns, its product
        "joint_heads by_value bulk_ring hot_l2 columns value_token tensor_rows stream_kv tensor_scores",
        "joint_heads by_value l2_prefetch bulk_ring stream_kv",  # idle blocks beside shares of the cache
        "graph vec128",
        "smem_cache cp_async graph",
        "redundant_rmsnorm l2_prefetch vec128 smem_cache warp_split atomic_barrier productive_spin split_kv fused_head "
        "multi_step",
        "multi_step fused_head head_split productive_spin atomic_barrier cp_async smem_cache l2_prefetch "
        "redundant_rmsnorm",
    ),
]
