"""Stack of a lab with one step more: the prediction of its time."""

from experiments.prediction.prediction import Prediction
from experiments.prediction.setup import PredictingSetup
from experiments.run.steps import LabStack


class PredictedStack(LabStack):
    """A stack of a setup that has a predictor."""

    setup: PredictingSetup

    def predict(self, gpu: str, position: int = 1) -> Prediction:
        """Time of one step at `position` on the GPU of conf/gpu/<gpu>.yaml, from exact counts: not a measurement.

        Counts that no record has are made on the PTX device first: about a minute for Qwen3-0.6B.
        Raises LabError for an unknown GPU, and for a position that the KV cache does not hold.
        """
        self.check_position(position)
        predictor = self.setup.predictor
        return predictor.predict(self.stack.variants, self.stack.knobs, predictor.gpu(gpu), position)
