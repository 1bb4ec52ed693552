"""Takes 50 ms for each request without computing anything: many workers fit on few cores."""

import time


class Nap:
    inputs = [("INPUT", "FP32", [-1, 1])]
    outputs = [("OUTPUT", "FP32", [-1, 1])]

    def load(self):
        pass

    def predict(self, inputs):
        time.sleep(0.05 * len(inputs["INPUT"]))
        return {"OUTPUT": inputs["INPUT"]}
