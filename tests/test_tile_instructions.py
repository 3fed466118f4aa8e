"""Instructions of a warp for a tile of the ring, as yaml declares them to the predictions: those of the SASS."""

import pytest
from composed import CATALOG, Composed
from sampled import sampled

from common.compile.nvrtc import compile_cubin
from common.compile.sass import INSTRUCTION, sass
from common.compile.source import Source
from common.config.resolve import model_named
from experiments.prediction.declared import quantity
from experiments.prediction.loops import TARGET, _lines

ARCH = "sm_90"
WARPS, TEAM = 8, 4  # of a block, and of a team that has a tile of the cache
PASS = 8  # instructions to pass over a tile of the other team
PRODUCTS = ("FFMA", "HMMA")
GIVES_UP = ("NANOSLEEP", "BPT")  # a wait that has to wait
COLUMNS = ("joint_heads", "by_value", "bulk_ring", "columns")


def tile_instructions(source: Source, folder) -> dict[str, int]:
    """By stage: of the loop that waits for a tile and multiplies it, those on the way with the most products, without
    a turn of an inner loop for tiles that are not full, and where the tile is there."""
    listing = sass(compile_cubin(source.text, ARCH, source.name, folder), "decode", folder, callers=True)
    lines, labels = _lines(listing)
    rows = [
        found
        for row in listing.splitlines()
        if (found := INSTRUCTION.match(row)) and (found[1] or "").strip() != "@!PT"
    ]
    assert len(rows) == len(lines)
    found: dict[str, tuple[int, int]] = {}
    for end, line in enumerate(lines):
        target = TARGET.search(line.operands) if line.name.startswith("BRA") else None
        if not target or labels.get(target[0], end + 1) > end:
            continue
        begin = labels[target[0]]
        stages = {each.stage for each in lines[begin : end + 1]} - {""}
        if len(stages) != 1 or not any(each.name.startswith("SYNCS.PHASECHK") for each in lines[begin : end + 1]):
            continue
        best: dict[int, tuple[int, int]] = {end: (0, -1)}  # products to the end of the turn, and fewest instructions
        for at in range(end - 1, begin - 1, -1):
            here, always = lines[at], not (rows[at][1] or "").strip()
            if here.name.split(".")[0] in GIVES_UP and (always or here.name.startswith("BPT")):
                continue
            jump = TARGET.search(here.operands) if here.name == "BRA" else None
            after = [labels[jump[0]]] if jump and at < labels.get(jump[0], 0) <= end else []
            after += [] if jump and always else [at + 1]
            if ways := [best[each] for each in after if each in best]:
                products, cost = max(ways)
                best[at] = (products + here.name.startswith(PRODUCTS), cost - 1)
        stage = stages.pop()
        if begin in best and best[begin][0] and (stage not in found or end - begin < found[stage][1]):
            found[stage] = (-best[begin][1], end - begin)
    return {stage: instructions for stage, (instructions, _) in found.items()}


@pytest.mark.parametrize(
    "composed",
    sampled(
        [Composed(COLUMNS), Composed((*COLUMNS, "tensor_rows")), Composed(CATALOG.stacks["streaming"].variants)], 1
    ),
    ids=str,
)
def test_declared_instructions_are_those_of_the_compiler(composed, host_cache):
    source = composed.source(model_named("qwen3_0_6b"))
    read = tile_instructions(source, host_cache / "cubins")
    assert read
    for stage, instructions in read.items():
        declared = quantity(source, "instructions_per_kb", stage, 1024, 0)
        kb = quantity(source, "tile_bytes", stage, 1024, 0) / 1024
        of_a_kb = (instructions + PASS) * TEAM / kb if stage == "attention" else instructions * WARPS / kb
        assert declared == pytest.approx(of_a_kb, rel=0.1), f"{stage}: {instructions} instructions of a tile"
