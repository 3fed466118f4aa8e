"""Setup of a run with a predictor for its steps."""

from functools import cached_property

from common.model.shapes import Model
from common.record.store import Store
from experiments.prediction.predictor import Predictor
from experiments.run.setup import Setup


class PredictingSetup(Setup):
    """A setup with a predictor for its model and block size."""

    @cached_property
    def predictor(self) -> Predictor:
        """Counts and predictions for the model; it may run kernels on the PTX device to count."""
        return self.predictor_of(self.model)

    def predictor_of(self, model: Model) -> Predictor:
        """The same for another model, such as this one in another format."""

        def on_count(name: str, where: int | str) -> None:
            self.show.begin(
                f"count {name} on {where} blocks" if isinstance(where, int) else f"compile {name} for {where}"
            )

        return Predictor(model, self.config.threads, self.store, self.config.cache, on_count, self.counted)

    @property
    def counted(self) -> Store | None:
        """Store of counts that a prediction had to make; None: among the records, which go to other machines."""
        return None
