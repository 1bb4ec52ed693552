"""Runs magika's ONNX file with ONNX Runtime inside Triton's Python backend, a whole batch at a time."""

import os

import numpy
import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, _):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("MAGIKA_THREADS", "1"))
        options.inter_op_num_threads = 1
        file = os.environ["MAGIKA_ONNX"]
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name

    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "bytes").as_numpy() for request in requests]
        scores = self.session.run(None, {self.input: numpy.concatenate(rows)})[0]
        ends = numpy.cumsum([len(row) for row in rows])[:-1]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("target_label", part)]) for part in numpy.split(scores, ends)
        ]
