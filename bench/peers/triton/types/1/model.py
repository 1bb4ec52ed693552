"""Gives back each tensor it was sent, IN_TYPE as OUT_TYPE, for Triton's Python backend.

BF16 has no array in numpy and passes as a DLPack capsule.
"""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, arguments):
        config = json.loads(arguments["model_config"])
        self.types = [tensor["name"].removeprefix("IN_") for tensor in config["input"]]

    def execute(self, requests):
        return [pb_utils.InferenceResponse(list(self.outputs(request))) for request in requests]

    def outputs(self, request):
        wanted = set(request.requested_output_names())
        for kind in self.types:
            tensor = pb_utils.get_input_tensor_by_name(request, f"IN_{kind}")
            name = f"OUT_{kind}"
            if name not in wanted:
                continue
            if kind == "BF16":
                yield pb_utils.Tensor.from_dlpack(name, tensor.to_dlpack())
            else:
                yield pb_utils.Tensor(name, tensor.as_numpy())
