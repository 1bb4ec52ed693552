"""Says how friendly texts are. Stands in for any model: load what you need once, answer whole batches."""

import numpy as np
import weft

WORDS = {b"good": 1.0, b"great": 2.0, b"love": 2.0, b"bad": -1.0, b"awful": -2.0, b"hate": -2.0}


class Sentiment(weft.Model):
    inputs = [weft.Tensor("TEXT", "BYTES", [-1, 1])]
    outputs = [weft.Tensor("SCORE", "FP32", [-1, 1])]

    def load(self):
        self.words = dict(WORDS)
        print("sentiment knows", len(self.words), "words")

    def predict(self, inputs):
        texts = inputs["TEXT"][:, 0]
        scores = [sum(self.words.get(word, 0.0) for word in text.lower().split()) for text in texts]
        return {"SCORE": np.array(scores, dtype=np.float32).reshape(-1, 1)}
