"""Asks a running server everything that NVIDIA's `tritonclient` can ask over gRPC, and prints one line for each.

    python triton_grpc.py ADDRESS

The server needs a model `echo` in versions 1 and 2 (`INPUT0` FP32 [-1, 16] comes back as `OUTPUT0`, at most 8 rows),
and models `echo_fp16`, `echo_bf16`, `echo_bytes` and so on with two dimensions of any size; the example `echo` of
`weft-gateway` has them.
"""

import queue
import sys
import uuid

import ml_dtypes
import numpy as np
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shared_memory
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

FAILED = []


def check(name):
    """Runs a function at once and prints whether it went well."""

    def run(function):
        try:
            function()
            print(f"ok      {name}")
        except Exception as error:  # noqa: BLE001
            FAILED.append(name)
            print(f"FAILED  {name}: {type(error).__name__}: {error}")

    return run


def refused(function, *codes):
    """The message of a call that must fail with one of these codes."""
    try:
        function()
    except InferenceServerException as error:
        assert error.status() in codes, error
        return error.message()
    raise AssertionError("it was not refused")


def floats():
    return np.arange(16, dtype=np.float32).reshape(1, 16)


def request(array, datatype="FP32"):
    tensor = triton.InferInput("INPUT0", list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return [tensor]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    client = triton.InferenceServerClient(sys.argv[1])

    @check("live, ready")
    def _():
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("echo") and client.is_model_ready("echo", "1")
        assert not client.is_model_ready("nobody")

    @check("server metadata")
    def _():
        metadata = client.get_server_metadata(as_json=True)
        assert metadata["name"] and "model_repository" in metadata["extensions"], metadata

    @check("model metadata")
    def _():
        metadata = client.get_model_metadata("echo")
        assert list(metadata.versions) == ["1", "2"] and list(metadata.inputs[0].shape) == [-1, 16], metadata
        refused(lambda: client.get_model_metadata("nobody"), "StatusCode.NOT_FOUND")

    @check("model config")
    def _():
        config = client.get_model_config("echo").config
        assert config.max_batch_size == 8 and list(config.input[0].dims) == [16], config
        assert config.HasField("dynamic_batching")
        client.get_model_config("echo", as_json=True)

    @check("repository index, load, unload")
    def _():
        index = client.get_model_repository_index().models
        assert ("echo", "2", "READY") in [(model.name, model.version, model.state) for model in index]
        client.load_model("echo")
        client.unload_model("echo")
        refused(lambda: client.load_model("missing"), "StatusCode.NOT_FOUND")

    @check("infer")
    def _():
        result = client.infer("echo", request(floats()), request_id="seven", model_version="1")
        assert np.array_equal(result.as_numpy("OUTPUT0"), floats())
        assert result.get_response().id == "seven" and result.get_response().model_version == "1"

    @check("infer, options")
    def _():
        output = [triton.InferRequestedOutput("OUTPUT0")]
        for options in (
            {"outputs": output, "priority": 3, "timeout": 500_000, "client_timeout": 2},
            {"compression_algorithm": "gzip"},
            {"compression_algorithm": "deflate"},
            {"headers": {"x-something": "1"}, "parameters": {"mine": 1, "own": "two"}},
            {"sequence_id": 5, "sequence_start": True, "sequence_end": True},
        ):
            result = client.infer("echo", request(floats()), **options)
            assert np.array_equal(result.as_numpy("OUTPUT0"), floats()), options

    @check("infer, every type")
    def _():
        types = [bool, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64]
        types += [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
        for kind in types:
            array = np.array([[1, 0, 1]]).astype(kind)
            datatype = "BF16" if kind is ml_dtypes.bfloat16 else np_to_triton_dtype(array.dtype)
            tensor = triton.InferInput("INPUT0", [1, 3], datatype)
            tensor.set_data_from_numpy(array)
            result = client.infer(f"echo_{datatype.lower()}", [tensor]).as_numpy("OUTPUT0")
            assert result.shape == (1, 3) and np.array_equal(result.astype(np.float64), array.astype(np.float64)), kind
        strings = np.array([["one", "", "tür".encode(), b"\x00\xff"]], dtype=object)
        result = client.infer("echo_bytes", request(strings, "BYTES")).as_numpy("OUTPUT0")
        assert result.tolist() == [[b"one", b"", "tür".encode(), b"\x00\xff"]], result

    @check("infer, in the background")
    def _():
        done = queue.Queue()
        for number in range(20):
            client.async_infer("echo", request(floats()), lambda result, error: done.put((result, error)))
        for _ in range(20):
            result, error = done.get(timeout=10)
            assert error is None and np.array_equal(result.as_numpy("OUTPUT0"), floats())

    @check("classification")
    def _():
        output = [triton.InferRequestedOutput("OUTPUT0", class_count=2)]
        result = client.infer("echo", request(floats()), outputs=output).as_numpy("OUTPUT0")
        assert result.tolist() == [[b"15.000000:15", b"14.000000:14"]], result

    @check("errors")
    def _():
        refused(lambda: client.infer("nobody", request(floats())), "StatusCode.NOT_FOUND")
        refused(lambda: client.infer("echo", request(floats()), model_version="9"), "StatusCode.NOT_FOUND")
        wrong = floats().reshape(2, 8)
        refused(lambda: client.infer("echo", request(wrong)), "StatusCode.INVALID_ARGUMENT")
        wrong = floats().astype(np.int32)
        refused(lambda: client.infer("echo", request(wrong, "INT32")), "StatusCode.INVALID_ARGUMENT")

    @check("stream")
    def _():
        done = queue.Queue()
        client.start_stream(lambda result, error: done.put((result, error)))
        for number in range(20):
            client.async_stream_infer(
                "echo", request(floats()), request_id=str(number), enable_empty_final_response=number % 2 == 0
            )
        client.async_stream_infer("nobody", request(floats()), request_id="wrong")
        answers = [done.get(timeout=10) for _ in range(21)]
        client.stop_stream()
        good = [result for result, error in answers if error is None]
        assert sorted(int(result.get_response().id) for result in good) == list(range(20)), answers
        assert all(result.get_response().parameters["triton_final_response"].bool_param for result in good)
        errors = [error.message() for _, error in answers if error is not None]
        assert len(errors) == 1 and "nobody" in errors[0], errors
        assert done.empty()

    @check("system shared memory")
    def _():
        key = f"/weft-check-{uuid.uuid4().hex}"
        handle = shared_memory.create_shared_memory_region("region", key, 128)
        try:
            shared_memory.set_shared_memory_region(handle, [floats()])
            client.register_system_shared_memory("region", key, 128)
            assert client.get_system_shared_memory_status("region").regions["region"].byte_size == 128
            tensor = triton.InferInput("INPUT0", [1, 16], "FP32")
            tensor.set_shared_memory("region", 64)
            output = triton.InferRequestedOutput("OUTPUT0")
            output.set_shared_memory("region", 64, offset=64)
            result = client.infer("echo", [tensor], outputs=[output])
            assert list(result.get_output("OUTPUT0").shape) == [1, 16]
            back = shared_memory.get_contents_as_numpy(handle, np.float32, [1, 16], offset=64)
            assert np.array_equal(back, floats())
            client.unregister_system_shared_memory("region")
            refused(lambda: client.infer("echo", [tensor]), "StatusCode.INVALID_ARGUMENT")
            client.unregister_system_shared_memory()
            assert not client.get_system_shared_memory_status().regions
        finally:
            shared_memory.destroy_shared_memory_region(handle)

    @check("CUDA shared memory")
    def _():
        assert not client.get_cuda_shared_memory_status().regions
        client.unregister_cuda_shared_memory()

    @check("statistics")
    def _():
        all_models = client.get_inference_statistics().model_stats
        assert len(all_models) > 1
        (one,) = client.get_inference_statistics("echo", "2").model_stats
        assert one.inference_stats.success.count > 0 and one.execution_count > 0, one
        client.get_inference_statistics("echo", as_json=True)

    @check("trace settings")
    def _():
        first = client.get_trace_settings().settings
        assert list(first["trace_level"].value) == ["OFF"], first
        changed = client.update_trace_settings("echo", {"trace_level": ["TIMESTAMPS"], "trace_rate": "5"}).settings
        assert list(changed["trace_level"].value) == ["TIMESTAMPS"] and list(changed["trace_rate"].value) == ["5"]
        assert list(client.get_trace_settings().settings["trace_level"].value) == ["OFF"]
        changed = client.update_trace_settings("echo", {"trace_level": None, "trace_rate": None}).settings
        assert list(changed["trace_level"].value) == ["OFF"]

    @check("log settings")
    def _():
        client.update_log_settings({"log_verbose_level": 1, "log_info": False, "log_format": "ISO8601"})
        changed = client.get_log_settings().settings
        assert changed["log_verbose_level"].uint32_param == 1 and not changed["log_info"].bool_param
        client.update_log_settings({"log_verbose_level": 0, "log_info": True, "log_format": "default"})

    @check("a long tensor")
    def _():
        array = np.random.default_rng(1).random((1, 4_000_000), dtype=np.float32)
        result = client.infer("echo_fp32", request(array)).as_numpy("OUTPUT0")
        assert np.array_equal(result, array)

    print(f"{len(FAILED)} failed" if FAILED else "all well")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
