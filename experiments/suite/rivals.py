"""Rivals: other engines with the same weights, prompts and number of tokens, on the same GPU in the same run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import cycle, islice, takewhile
from typing import Any

from common.config.resolve import check_ids
from common.config.run_config import RunConfig
from common.devices.protocol import Session
from common.errors import LabError, Mismatched, known
from common.errors.machine import MachineError, system_errors
from common.record.provenance import installed
from common.validate.reference import Reference
from experiments.engines.arms import ARMS, Arm
from experiments.engines.race import IDS, LOGITS, RUNS, STAGES, WARM_UPS, Ran, Workload, judged, timed_session
from experiments.experiment import NOT_RUN, Experiment
from experiments.processes import apart
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet
from experiments.tables.result_table import COUNTED, ResultTable

QUESTION = "how fast other engines decode the same weights on the same machine, and whether they choose the same tokens"
NOTES = (
    "Same ids: how many tokens of all answers, from the first of each up to the first that differs, equal the lab's "
    "float64 reference. bf16 engines differ from it where two logits nearly tie, as synthetic weights' often do: a low "
    "number says nothing against one that was validated by more than ids.",
    "tok/s at a position: of the tokens after the first one behind a prompt of so many ids; that one is not timed with "
    f"them. The first token includes the prompt, which torch reads for the lab's kernels. Times are medians of {RUNS} "
    f"runs after {WARM_UPS} warm-ups.",
    f"Validated, in this run and before any time was taken, by {STAGES}: all of some steps was compared with the "
    f"reference, with the lab's tolerances; by {LOGITS}: the same of what an arm in torch shows, in float32; by {IDS}: "
    "an engine shows nothing else. One that chose no token of the reference does not have these weights.",
    "spread %: the fastest run minus the slowest at a position, of their median; the largest over the positions. Peak "
    "memory is what torch allocated in the race, and for kernels of this lab and of Triton their four buffers.",
)
MISSING = "all times, CUDA graphs and torch.compile; here the answers are compared"
OWN = {"settings": "as it is named; one sequence, every size a constant", "also does": "-"}


def ask(experiment: Experiment) -> ResultTable:
    """A row for each stack of the run and each rival; one that cannot run says why."""
    work = workload(experiment)
    chosen = dict.fromkeys(known("rival", name, ARMS) for name in experiment.options.texts("rivals") or ARMS)
    missing = {*experiment.options.wholes("positions", low=1)} - set(map(len, work.prompts))
    if missing:
        cause = f"positions {', '.join(map(str, sorted(missing)))}: the cache has {experiment.model.positions}"
        experiment.left_out.append(f"Left out: {cause}; give model.positions={max(missing) + work.tokens}")
    experiment.show.begin("reference")
    with experiment.exclusive_gpu():
        truth = reference(work)

    def rival(name: str) -> dict[str, Any]:
        if not experiment.on_gpu:
            return attempt(ARMS[name], work, truth)
        try:
            # torch.compile compiles for the judge and for each position.
            limit = experiment.config.timeout_s * (1 + len(work.prompts))
            return apart(limit, _alone, experiment.config, name, truth)
        except LabError as error:
            return {"state": f"failed: {error.cause}"}

    def raced(session: Session) -> dict[str, Any]:
        validated = judged(session, experiment)
        ran = replace(timed_session(session, work), peak_bytes=session.layout.bytes, validated=validated)
        return _row(ran, work, truth)

    own = experiment.session_rows(experiment.chosen(), raced)
    rows = [{"system": f"this lab: {row.pop('variant')}", **row, **OWN} for row in own]
    for name in chosen:
        if row := experiment.row(name, partial(rival, name), version=installed(ARMS[name].package)):
            rows.append({"system": name, **row, "settings": ARMS[name].settings, "also does": ARMS[name].also})
    return experiment.answer(QUESTION, rows, NOTES, (COUNTED, MISSING))


def workload(lab: Setup) -> Workload:
    """Options that hold for every arm. Raises LabError for wrong ones, and where no position fits into the cache."""
    options = lab.config.options
    ids, tokens = options.wholes("prompt_ids", low=0), options.whole("tokens", low=2)
    check_ids(ids, lab.model, "options.prompt_ids")
    if lab.layout.scaled:
        raise LabError("arms read weights, keys and values in bf16", "leave format=, head_format= and kv_format= out")
    lengths = dict.fromkeys(options.wholes("positions", low=1))
    if fits := [length for length in lengths if length + tokens <= lab.model.positions]:
        prompts = tuple(tuple(islice(cycle(ids), length)) for length in fits)
        return Workload(lab, prompts, tokens)
    needed = min(lengths) + tokens
    raise LabError(
        f"options.positions: {min(lengths)} and {tokens} tokens do not fit a cache of {lab.model.positions} positions",
        f"give model.positions={needed}",
    )


def reference(work: Workload) -> list[list[int]]:
    """Ids that the float64 reference appends to each prompt, whose entries torch computes in float32."""
    lab = work.lab
    steps = Reference(lab.layout, lab.packed.flat, device=lab.reference_device)
    return [steps.greedy(prompt, work.tokens, work.entries(prompt)) for prompt in work.prompts]


def attempt(arm: Arm, work: Workload, truth: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The row of one rival. A failure inside another engine costs that row only."""
    try:
        if arm.why_gpu and work.device == "cpu":
            raise LabError(arm.why_gpu, "run with device=cuda")
        with system_errors(arm.package):
            return _row(arm.run(work), work, truth) | {"version": f"{arm.package} {version(arm.package)}"}
    except MachineError:
        raise
    except Mismatched as error:
        return {"state": f"wrong: {error.cause}"}
    except LabError as error:
        return {"state": f"{NOT_RUN}: {error}"}
    except Exception as error:
        return {"state": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def _alone(config: RunConfig, name: str, truth: list[list[int]]) -> dict[str, Any]:
    """`attempt` in a process of its own: a rival that hangs or crashes costs its limit, and leaves nothing behind."""
    return attempt(ARMS[name], workload(Setup(config, Quiet())), truth)


def _row(ran: Ran, work: Workload, truth: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The figures of an arm that ran; on a CPU without times, which would say nothing about a GPU."""
    same = sum(_same(run.ids, want) for run, want in zip(ran.runs, truth, strict=True))
    if not same:
        raise Mismatched("no answer begins as the reference's", "give the same weights")
    row: dict[str, Any] = {"state": "ran", "validated": ran.validated, "same ids": f"{same} of {sum(map(len, truth))}"}
    if work.device == "cuda":
        at = [len(prompt) for prompt in work.prompts]
        row |= {f"tok/s at {length}": run.rate for length, run in zip(at, ran.runs, strict=True)}
        row |= {f"first token ms at {length}": 1e3 * run.first for length, run in zip(at, ran.runs, strict=True)}
        row["spread %"] = 100 * max(run.spread for run in ran.runs)
        row["peak MB"] = ran.peak_bytes / 1e6 if ran.peak_bytes else None
    return row


def _same(ids: Sequence[int], want: Sequence[int]) -> int:
    """Number of ids, from the first on, that are those of the reference."""
    pairs = zip(ids, want, strict=False)  # drafts may make more ids than were asked
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
