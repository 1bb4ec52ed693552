"""Gives back the numbers it was sent, for BentoML: `bentoml serve echo:Echo`. Its JSON is its own."""

import bentoml
import numpy


@bentoml.service(workers=1, metrics={"enabled": True})
class Echo:
    @bentoml.api
    def predict(self, input: numpy.ndarray) -> numpy.ndarray:
        return input.astype(numpy.float32)
