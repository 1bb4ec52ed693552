"""Gives back the numbers it was sent, for KServe: `python echo.py --http_port PORT --grpc_port PORT`."""

from kserve import InferOutput, InferResponse, Model, ModelServer


class Echo(Model):
    def __init__(self):
        super().__init__("echo")
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        numbers = payload.inputs[0].as_numpy()
        output = InferOutput("OUTPUT", list(numbers.shape), "FP32")
        output.set_data_from_numpy(numbers, binary_data=False)
        return InferResponse(payload.id or "none", self.name, [output])


if __name__ == "__main__":
    ModelServer(workers=1).start([Echo()])
