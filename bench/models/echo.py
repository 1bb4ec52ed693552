"""Gives back the numbers it was sent."""


class Echo:
    inputs = [("INPUT", "FP32", [-1, 16])]
    outputs = [("OUTPUT", "FP32", [-1, 16])]

    def load(self):
        pass

    def predict(self, inputs):
        return {"OUTPUT": inputs["INPUT"]}
