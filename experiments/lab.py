"""The lab as a Python object: the same configuration, steps and records as the command line."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from common.config.cli import composed
from common.config.resolve import resolve
from common.config.texts import override_text
from common.config.unused import refuse_runs_keys
from common.errors import LabError
from common.lazy import pandas
from experiments.run.setup import Setup
from experiments.tables.progress import Quiet

if TYPE_CHECKING:
    from experiments.run.steps import LabStack


class Lab(Setup):
    """The lab in this process, opened with the arguments of `python -m experiments`.

    overrides: as on the command line, such as "timing.steps=10". keys: the same without a dot, as Python values, such
    as threads=512. Defaults of other keys are in conf/. Nothing is loaded or compiled before it is needed. Unlike the
    command line, which gives each stack a process of its own, a kernel runs in this process: one that crashes a GPU's
    context takes the notebook's with it. Raises LabError for a mistake, as all of its methods do.

    >>> from experiments import Lab
    >>> with Lab(model="tiny", device="ptx", seed=7) as lab:
    ...     stack = lab.stack("warp_split", ratio="2:6")
    ...     verdict = stack.validate()
    >>> verdict.passed
    True
    >>> stack.counts().total("grid_barriers")
    19
    """

    def __init__(self, *overrides: str, **keys: Any) -> None:
        for override in overrides:
            if not isinstance(override, str):
                raise LabError(f"{override!r} is no override", 'give a text, "timing.steps=10", or a key: threads=512')
        given = (f"{key}={override_text(value)}" for key, value in keys.items())
        config = composed("lab", [*overrides, *given])
        refuse_runs_keys(config, "a Lab")
        super().__init__(resolve(config), Quiet())

    def stack(self, named: str | Sequence[str], **knobs: Any) -> "LabStack":
        """A variant or named stack by its name, or a list of variants, innermost first; with values of its knobs."""
        from experiments.run.steps import LabStack

        return LabStack(self, self.choose(named, knobs))

    @property
    def stacks(self) -> "list[LabStack]":
        """The stacks that the configuration chose: `Lab(variant="all")` has one for every variant."""
        from experiments.run.steps import LabStack

        return [LabStack(self, stack) for stack in self.config.stacks]

    def records(self) -> "pandas.DataFrame":
        """Every record of `results=`, a row each, oldest first, by its id; `model.name` and the like are columns."""
        rows = pandas.json_normalize(self.store.records(), max_level=1)
        return rows.set_index("id") if len(rows) else rows

    def close(self) -> None:
        """Release weights and device; a later use makes them again."""
        for name in [name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)]:
            delattr(self, name)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        config = self.config
        model = config.model.name if config.model else config.weights
        return f"Lab({model} on {config.device.name}: {config.device.why}; seed {config.seed})"
