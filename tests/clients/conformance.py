"""Makes every call of NVIDIA's tritonclient, HTTP and gRPC, and writes down what came back.

    python conformance.py --http HOST:PORT --grpc HOST:PORT --out here.json --compare triton.json

The server has two models. `echo`: INPUT FP32 [-1,16], OUTPUT the same values. `types`: for each data type T an
input IN_T and an output OUT_T of shape [-1,-1] with the same values. Both accept batches of up to 8.

A check asserts what any server must answer (values, names, that an error is an error) and returns what else is
worth comparing: types and key values, never times. `triton.json` is what Triton 2.51 answered. Differences from it
fail, except those in DELIBERATE, each with its reason and with the answer that is expected in its place.
"""

import argparse
import fnmatch
import http.client
import json
import queue
import sys
import time
import traceback
import zlib

import ml_dtypes
import numpy
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory

# Where we mean to differ from Triton: which checks, which field of the result, what we answer, why.
DELIBERATE = [
    ("*/error/*", "status", {"500": "400"}, "what a client did wrong is 4xx, not Triton's 500"),
    ("raw/*", "status", {500: 400}, "what a client did wrong is 4xx, not Triton's 500"),
    ("raw/*", "content_type", {"text/plain": "application/json"}, "an error body is JSON and says so"),
    ("raw/encoding/unsupported", "status", {501: 415}, "415 is the status for an encoding that is not known"),
    ("raw/encoding/not gzip", "*", None, "Triton takes data it cannot inflate for an empty raw request"),
    ("raw/header length/not a number", "*", None, "Triton takes a header it cannot read for a raw request"),
    ("raw/header length/zero", "*", None, "Triton's raw requests (a body without JSON) are not served"),
    ("raw/body/empty", "*", None, "Triton's raw requests (a body without JSON) are not served"),
    ("raw/body/overflowing shape", "message", None, "Triton multiplies past 64 bits and finds 0 bytes"),
    ("raw/logging/wrong format", "status", {503: 400}, "what a client did wrong is 4xx, not Triton's 503"),
    ("raw/*/cannot move file", "status", {501: 400}, "a setting that may not be changed is the client's mistake"),
    ("*/error/load unknown", "status", {"500": "404", "StatusCode.INTERNAL": "StatusCode.NOT_FOUND"}, "no such model"),
    ("*/error/statistics unknown*", "status", {"400": "404", "StatusCode.INVALID_ARGUMENT": "StatusCode.NOT_FOUND"},
     "no such model, as every other call says"),
    ("grpc/error/*", "status", {"StatusCode.INTERNAL": "StatusCode.INVALID_ARGUMENT"}, "the client's mistake"),
    ("grpc/error/shared memory/unknown region", "status", {"StatusCode.NOT_FOUND": "StatusCode.INVALID_ARGUMENT"},
     "the request names a region that nobody registered"),
    ("grpc/error/version of letters", "status", {"StatusCode.INVALID_ARGUMENT": "StatusCode.NOT_FOUND"},
     "there is no such version, as HTTP says in both"),
    ("raw/model/ready unknown", "status", {400: 404}, "no such model, as every other call says"),
    ("raw/trace/unknown model", "status", {400: 404}, "no such model, as every other call says"),
    ("raw/infer/nested data", "*", None, "arrays that contradict the shape are the client's mistake"),
    ("raw/body/list as parameter", "*", None, "parameters that mean nothing here are left alone"),
    ("raw/infer/NaN", "*", None, "NaN is not JSON; the binary form has it"),
    ("http/JSON ?P16 output", "*", None, "Triton cannot write these types as JSON, Weft can"),
    ("http/JSON BF16 output", "*", None, "Triton cannot write these types as JSON, Weft can"),
    ("*/config*", "shape", None, "what Triton's queue and model files are set to has no meaning here"),
    ("*/server metadata", "extensions", None, "the required ones are asserted by the check itself"),
]

TYPES = {
    "BOOL": numpy.array([[True, False, True]]),
    "UINT8": numpy.array([[0, 1, 255]], numpy.uint8),
    "UINT16": numpy.array([[0, 1, 65535]], numpy.uint16),
    "UINT32": numpy.array([[0, 1, 2**32 - 1]], numpy.uint32),
    "UINT64": numpy.array([[0, 1, 2**64 - 1]], numpy.uint64),
    "INT8": numpy.array([[-128, 0, 127]], numpy.int8),
    "INT16": numpy.array([[-(2**15), 0, 2**15 - 1]], numpy.int16),
    "INT32": numpy.array([[-(2**31), 0, 2**31 - 1]], numpy.int32),
    "INT64": numpy.array([[-(2**63), 0, 2**63 - 1]], numpy.int64),
    "FP16": numpy.array([[-1.5, 0.0, 65504.0]], numpy.float16),
    "BF16": numpy.array([[-1.5, 0.0, 3.0e38]], ml_dtypes.bfloat16),
    "FP32": numpy.array([[-1.5, 0.1, 3.4e38]], numpy.float32),
    "FP64": numpy.array([[-1.5, 0.1, 1.7e308]], numpy.float64),
    "BYTES": numpy.array([[b"", "grüße".encode(), b"a,b\n"]], numpy.object_),
}
# Have no form as JSON in Triton: it refuses to write them so.
ONLY_BINARY = {"FP16", "BF16"}
EXTENSIONS = {
    "model_repository", "schedule_policy", "model_configuration", "system_shared_memory", "binary_tensor_data",
    "parameters", "statistics", "trace", "logging",
}
TRACE_SETTINGS = {"trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode"}
LOG_SETTINGS = {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
STATISTICS = {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output"}


def rows(count=1, start=0.0):
    return numpy.arange(start, start + 16 * count, dtype=numpy.float32).reshape(count, 16)


class Checks:
    """Runs checks one by one; a check that raises has failed and the next goes on."""

    def __init__(self, only):
        self.only = only
        self.results = {}
        self.failed = []

    def check(self, name, action):
        if self.only and not fnmatch.fnmatch(name, self.only):
            return
        assert name not in self.results, f"two checks named {name}"
        try:
            self.results[name] = plain(action())
            print(f"ok      {name}")
        except Exception as error:  # noqa: BLE001: any exception at all is a failed check
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}".replace("\n", " ")
            print(f"FAILED  {name}: {what[:300]} (line {place.lineno} of {place.name})")
            self.results[name] = {"failed": type(error).__name__}
            self.failed.append(name)
        sys.stdout.flush()


def plain(value):
    """As JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, numpy.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def shape_of(value):
    """The names and types in a JSON value, without its values."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return type(value).__name__


def refused(action):
    """What an error that has to come says."""
    try:
        answer = action()
    except InferenceServerException as error:
        assert error.message(), "an error without a message"
        assert "while decoding the response" not in error.message(), error.message()
        return {"status": error.status(), "message": error.message()}
    raise AssertionError(f"was answered and should have been refused: {answer}")


def same(found, wanted):
    assert found is not None, "no such output"
    if found.dtype == numpy.object_:
        # BYTES that came as JSON are text.
        encoded = [one.encode() if isinstance(one, str) else one for one in found.flatten()]
        found = numpy.array(encoded, numpy.object_).reshape(found.shape)
    assert found.dtype == wanted.dtype, f"dtype {found.dtype}, wanted {wanted.dtype}"
    assert found.shape == wanted.shape, f"shape {found.shape}, wanted {wanted.shape}"
    assert numpy.array_equal(found, wanted), f"values {found.tolist()}, wanted {wanted.tolist()}"
    return found


class Client:
    """What the two clients have in common, under one set of names."""

    def __init__(self, kind, address, model):
        self.kind = kind
        self.model = model
        self.module = triton_http if kind == "http" else triton_grpc
        self.api = self.module.InferenceServerClient(address, **({"concurrency": 4} if kind == "http" else {}))

    def json(self):
        """gRPC's answers as JSON, which HTTP's are."""
        return {} if self.kind == "http" else {"as_json": True}

    def input(self, values, name="INPUT", datatype="FP32", binary=True, shape=None):
        tensor = self.module.InferInput(name, list(shape or values.shape), datatype)
        if self.kind == "http":
            tensor.set_data_from_numpy(values, binary_data=binary)
        else:
            tensor.set_data_from_numpy(values)
        return tensor

    def output(self, name="OUTPUT", binary=True, **options):
        if self.kind == "http":
            return self.module.InferRequestedOutput(name, binary_data=binary, **options)
        return self.module.InferRequestedOutput(name, **options)

    def infer(self, values=None, model=None, **options):
        inputs = options.pop("inputs", None) or [self.input(rows() if values is None else values)]
        return self.api.infer(model or self.model, inputs, **options)

    def response(self, result):
        """Names and values beside the tensors."""
        answer = result.get_response() if self.kind == "http" else result.get_response(as_json=True)
        outputs = answer.get("outputs", [])
        return {
            "id": answer.get("id", ""),
            "model_name": answer["model_name"],
            "model_version": answer["model_version"],
            "outputs": [[one["name"], one["datatype"], [int(size) for size in one["shape"]]] for one in outputs],
        }

    def echoed(self, values=None, **options):
        values = rows() if values is None else values
        result = self.infer(values, **options)
        same(result.as_numpy("OUTPUT"), values)
        return self.response(result)


def run_common(checks, client):
    kind, api, model = client.kind, client.api, client.model

    def check(name, action):
        checks.check(f"{kind}/{name}", action)

    # Server and model.
    check("server live", lambda: truth(api.is_server_live()))
    check("server ready", lambda: truth(api.is_server_ready()))
    check("server metadata", lambda: server_metadata(api.get_server_metadata(**client.json())))
    check("model ready", lambda: truth(api.is_model_ready(model)))
    check("model ready/version", lambda: truth(api.is_model_ready(model, "1")))
    check("model ready/unknown", lambda: not truth(not api.is_model_ready("no-such-model")))
    check("model ready/unknown version", lambda: not truth(not api.is_model_ready(model, "99")))
    check("model metadata", lambda: model_metadata(api.get_model_metadata(model, **client.json()), model))
    check("model metadata/version", lambda: model_metadata(api.get_model_metadata(model, "1", **client.json()), model))
    check("model metadata/types", lambda: types_metadata(api.get_model_metadata("types", **client.json())))
    check("config", lambda: config(api.get_model_config(model, **client.json()), model))
    check("config/version", lambda: config(api.get_model_config(model, "1", **client.json()), model))
    check("statistics", lambda: statistics(client))
    check("statistics/version", lambda: statistics(client, "1"))
    check("statistics/all models", lambda: all_statistics(client))
    check("index", lambda: index(client))

    # Infer.
    check("infer/binary", lambda: client.echoed())
    check("infer/version", lambda: client.echoed(model_version="1"))
    check("infer/id", lambda: client.echoed(request_id="abc-1"))
    check("infer/batch of 3", lambda: client.echoed(rows(3)))
    check("infer/largest batch", lambda: client.echoed(rows(8)))
    check("infer/requested output", lambda: client.echoed(outputs=[client.output()]))
    check("infer/priority", lambda: client.echoed(priority=1))
    check("infer/timeout", lambda: client.echoed(timeout=5_000_000))
    check("infer/priority and timeout", lambda: client.echoed(priority=2, timeout=5_000_000))
    check("infer/parameters", lambda: client.echoed(parameters={"colour": "red", "count": 3, "flag": True}))
    check("infer/classification", lambda: classified(client))
    check("infer/special numbers", lambda: special_numbers(client))
    for algorithm in ("gzip", "deflate"):
        if kind == "http":
            both = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
            check(f"infer/{algorithm} request", lambda a=algorithm: client.echoed(request_compression_algorithm=a))
            check(f"infer/{algorithm} response", lambda a=algorithm: client.echoed(response_compression_algorithm=a))
            check(f"infer/{algorithm} both", lambda both=both: client.echoed(rows(8), **both))
        else:
            check(f"infer/{algorithm}", lambda a=algorithm: client.echoed(rows(8), compression_algorithm=a))
    check("infer/async", lambda: several_at_once(client))
    check("types/all binary", lambda: all_types(client))
    for datatype in TYPES:
        check(f"types/{datatype}", lambda datatype=datatype: one_type(client, datatype))
    check("types/empty", lambda: empty_tensors(client))

    # Errors.
    def error(name, action):
        check(f"error/{name}", lambda: refused(action))

    error("unknown model", lambda: client.infer(model="no-such-model"))
    error("unknown version", lambda: client.infer(model_version="99"))
    error("version of letters", lambda: client.infer(model_version="one"))
    error("metadata unknown model", lambda: api.get_model_metadata("no-such-model"))
    error("metadata unknown version", lambda: api.get_model_metadata(model, "99"))
    error("config unknown model", lambda: api.get_model_config("no-such-model"))
    error("statistics unknown model", lambda: api.get_inference_statistics("no-such-model"))
    error("statistics unknown version", lambda: api.get_inference_statistics(model, "99"))
    error("wrong shape", lambda: client.infer(numpy.zeros((1, 8), numpy.float32)))
    error("wrong rank", lambda: client.infer(numpy.zeros(16, numpy.float32)))
    error("batch too large", lambda: client.infer(rows(9)))
    error("wrong type", lambda: client.infer(inputs=[client.input(rows().astype(numpy.int32), datatype="INT32")]))
    error("unknown type", lambda: client.infer(inputs=[with_datatype(client, "FP99")]))
    error("wrong name", lambda: client.infer(inputs=[client.input(rows(), name="NOT_INPUT")]))
    error("missing input", lambda: client.infer(inputs=[client.input(TYPES["INT32"], "IN_INT32", "INT32")], model="types"))
    error("input too many", lambda: client.infer(inputs=[client.input(rows()), client.input(rows(), name="SECOND")]))
    error("same input twice", lambda: client.infer(inputs=[client.input(rows()), client.input(rows())]))
    error("unknown output", lambda: client.infer(outputs=[client.output("NOT_OUTPUT")]))
    error("too much data", lambda: client.infer(inputs=[with_data(client, rows(2), [1, 16])]))
    error("too little data", lambda: client.infer(inputs=[with_data(client, rows(), [2, 16])]))
    error("load unknown", lambda: api.load_model("no-such-model"))

    # Shared memory.
    run_shared_memory(client, check, error)

    # Settings.
    check("trace settings", lambda: trace_settings(api.get_trace_settings(**client.json())))
    check("trace settings/model", lambda: trace_settings(api.get_trace_settings(model, **client.json())))
    check("trace settings/update", lambda: update_trace(client))
    check("log settings", lambda: log_settings(api.get_log_settings(**client.json())))
    check("log settings/update", lambda: update_log(client))

    # Last, because the model goes away for a moment.
    check("load/again", lambda: load_again(client))
    check("load/unload and load", lambda: unload_and_load(client))


def truth(value):
    assert value is True, f"{value}"
    return value


def server_metadata(answer):
    assert isinstance(answer["name"], str) and answer["name"], "no name"
    assert isinstance(answer["version"], str) and answer["version"], "no version"
    lacking = EXTENSIONS - set(answer["extensions"])
    assert not lacking, f"extensions lack {sorted(lacking)}"
    return {"keys": set(answer), "extensions": sorted(answer["extensions"])}


def tensors(described):
    return [[one["name"], one["datatype"], [int(size) for size in one["shape"]]] for one in described]


def model_metadata(answer, model):
    assert answer["name"] == model
    assert answer["versions"] == ["1"], answer["versions"]
    assert isinstance(answer["platform"], str)
    assert tensors(answer["inputs"]) == [["INPUT", "FP32", [-1, 16]]], answer["inputs"]
    assert tensors(answer["outputs"]) == [["OUTPUT", "FP32", [-1, 16]]], answer["outputs"]
    return {"keys": set(answer)}


def types_metadata(answer):
    found = {datatype: shape for _, datatype, shape in tensors(answer["inputs"])}
    assert found == {datatype: [-1, -1] for datatype in TYPES}, found
    return {"inputs": sorted(tensors(answer["inputs"])), "outputs": sorted(tensors(answer["outputs"]))}


def config(answer, model):
    answer = answer.get("config", answer)
    assert answer["name"] == model
    assert int(answer["max_batch_size"]) == 8, answer["max_batch_size"]
    assert [one["name"] for one in answer["input"]] == ["INPUT"]
    assert answer["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(size) for size in answer["input"][0]["dims"]] == [16]
    assert answer["output"][0]["data_type"] == "TYPE_FP32"
    assert "dynamic_batching" in answer, "perf_analyzer looks for dynamic_batching"
    return {"shape": shape_of(answer)}


def counts(client, version=""):
    answer = client.api.get_inference_statistics(client.model, version, **client.json())
    assert len(answer["model_stats"]) == 1, "more than one version"
    return answer["model_stats"][0]


def statistics(client, version=""):
    def count(stats):
        return {
            "inference_count": int(stats.get("inference_count", 0)),
            "success": int(stats["inference_stats"]["success"].get("count", 0)),
            "queue": int(stats["inference_stats"]["queue"].get("count", 0)),
            "compute_infer": int(stats["inference_stats"]["compute_infer"].get("count", 0)),
        }

    client.infer()
    before = count(counts(client, version))
    client.infer(rows(3))
    stats = counts(client, version)
    after = count(stats)
    assert stats["name"] == client.model and stats["version"] == "1"
    assert STATISTICS <= set(stats["inference_stats"]), set(stats["inference_stats"])
    assert int(stats["inference_stats"]["success"]["ns"]) > 0, "no time was spent"
    assert stats["batch_stats"] and "compute_infer" in stats["batch_stats"][0]
    # A batch of three is one request and three inferences.
    return {"grew": {key: after[key] - before[key] for key in after}, "keys": set(stats)}


def all_statistics(client):
    answer = client.api.get_inference_statistics(**client.json())
    names = [stats["name"] for stats in answer["model_stats"]]
    assert {client.model, "types"} <= set(names), names
    return {"keys": set(answer)}


def index(client):
    answer = client.api.get_model_repository_index(**client.json())
    models = answer if client.kind == "http" else answer["models"]
    found = {one["name"]: one for one in models}
    assert {client.model, "types"} <= set(found), set(found)
    assert found[client.model] == {"name": client.model, "version": "1", "state": "READY"}, found[client.model]
    return found[client.model]


def classified(client):
    """Classification is an extension of Triton's that may be absent; then it is refused and never ignored."""
    try:
        result = client.infer(outputs=[client.output(class_count=3)])
    except InferenceServerException as error:
        assert error.status() in ("400", "StatusCode.INVALID_ARGUMENT", "501", "StatusCode.UNIMPLEMENTED")
        return {"classification": "refused"}
    found = result.as_numpy("OUTPUT").tolist()
    assert [[bytes(one).decode() for one in row] for row in found] == [
        ["15.000000:15", "14.000000:14", "13.000000:13"]
    ], found
    return {"classification": "served"}


def special_numbers(client):
    values = rows()
    values[0, :4] = [numpy.nan, numpy.inf, -numpy.inf, -0.0]
    found = client.infer(values).as_numpy("OUTPUT")
    assert found.tobytes() == values.tobytes(), found
    return {}


def several_at_once(client):
    count = 8
    values = [rows(1, start=100.0 * number) for number in range(count)]
    if client.kind == "http":
        waiting = [
            client.api.async_infer(client.model, [client.input(value)], request_id=str(number))
            for number, value in enumerate(values)
        ]
        results = [one.get_result() for one in waiting]
    else:
        answers = queue.Queue()
        for number, value in enumerate(values):
            client.api.async_infer(
                client.model, [client.input(value)], lambda result, error: answers.put((result, error)),
                request_id=str(number),
            )
        results = []
        for _ in range(count):
            result, error = answers.get(timeout=20)
            assert error is None, error
            results.append(result)
        results.sort(key=lambda result: int(result.get_response().id))
    for number, (result, value) in enumerate(zip(results, values, strict=True)):
        same(result.as_numpy("OUTPUT"), value)
        assert client.response(result)["id"] == str(number)
    return {"answers": len(results)}


def type_inputs(client, text=()):
    return [
        client.input(values, f"IN_{datatype}", datatype, binary=datatype not in text)
        for datatype, values in TYPES.items()
    ]


def all_types(client):
    result = client.infer(inputs=type_inputs(client), model="types")
    for datatype, values in TYPES.items():
        same(result.as_numpy(f"OUT_{datatype}"), values)
    return {"outputs": sorted(client.response(result)["outputs"])}


def one_type(client, datatype):
    """This type as text in and out where the protocol has text, binary elsewhere."""
    text = {datatype} - ONLY_BINARY
    outputs = [client.output(f"OUT_{datatype}", binary=not text)]
    result = client.infer(inputs=type_inputs(client, text), outputs=outputs, model="types")
    same(result.as_numpy(f"OUT_{datatype}"), TYPES[datatype])
    return client.response(result)["outputs"]


def empty_tensors(client):
    inputs = [
        client.input(values[:, :0], f"IN_{datatype}", datatype) for datatype, values in TYPES.items()
    ]
    try:
        result = client.infer(inputs=inputs, outputs=[client.output("OUT_FP32")], model="types")
    except InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}
    assert result.as_numpy("OUT_FP32").shape == (1, 0)
    return client.response(result)["outputs"]


def with_datatype(client, datatype):
    tensor = client.input(rows())
    if client.kind == "http":
        tensor._datatype = datatype
    else:
        tensor._input.datatype = datatype
    return tensor


def with_data(client, values, shape):
    """An input whose data has not the length that its shape says."""
    tensor = client.input(values)
    tensor.set_shape(shape)
    return tensor


def run_shared_memory(client, check, error):
    api = client.api
    key, name = f"/weft_conformance_{client.kind}", f"conformance_{client.kind}"
    region = shared_memory.create_shared_memory_region(name, key, 4096)
    values = rows(2)
    size = values.nbytes

    def placed(offset=0, count=size, where=name):
        tensor = client.module.InferInput("INPUT", [2, 16], "FP32")
        tensor.set_shared_memory(where, count, offset)
        return tensor

    def wanted(offset, count=size, where=name):
        output = client.output()
        output.set_shared_memory(where, count, offset)
        return output

    def status():
        answer = api.get_system_shared_memory_status(**client.json())
        if client.kind == "http":
            return sorted(one["name"] for one in answer)
        return sorted(answer.get("regions", {}))

    def registered():
        api.register_system_shared_memory(name, key, 4096)
        assert name in status()
        answer = api.get_system_shared_memory_status(name, **client.json())
        one = answer[0] if client.kind == "http" else answer["regions"][name]
        assert (one["name"], one["key"], int(one["byte_size"])) == (name, key, 4096), one
        return {"keys": set(one)}

    def both():
        shared_memory.set_shared_memory_region(region, [values])
        result = client.infer(inputs=[placed()], outputs=[wanted(1024)])
        same(shared_memory.get_contents_as_numpy(region, numpy.float32, [2, 16], offset=1024), values)
        return client.response(result)

    def only_input():
        shared_memory.set_shared_memory_region(region, [values], offset=256)
        result = client.infer(inputs=[placed(256)])
        same(result.as_numpy("OUTPUT"), values)
        return client.response(result)

    def only_output():
        result = client.infer(values + 1, outputs=[wanted(2048)])
        same(shared_memory.get_contents_as_numpy(region, numpy.float32, [2, 16], offset=2048), values + 1)
        return client.response(result)

    def unregistered():
        api.unregister_system_shared_memory(name)
        assert name not in status()
        api.unregister_system_shared_memory(name)
        return {}

    def all_unregistered():
        api.register_system_shared_memory(name, key, 4096)
        api.unregister_system_shared_memory()
        assert status() == [], status()
        return {}

    try:
        error("shared memory/no such key", lambda: api.register_system_shared_memory("none", "/weft_no_such_key", 64))
        error("shared memory/beyond its end", lambda: api.register_system_shared_memory("none", key, 8192))
        error("shared memory/status of unknown", lambda: api.get_system_shared_memory_status("no-such-region"))
        check("shared memory/register", registered)
        error("shared memory/register twice", lambda: api.register_system_shared_memory(name, key, 4096))
        check("shared memory/input and output", both)
        check("shared memory/input", only_input)
        check("shared memory/output", only_output)
        error("shared memory/unknown region", lambda: client.infer(inputs=[placed(where="no-such-region")]))
        error("shared memory/input beyond its end", lambda: client.infer(inputs=[placed(4090)]))
        error("shared memory/input too short", lambda: client.infer(inputs=[placed(0, 64)]))
        error("shared memory/output beyond its end", lambda: client.infer(values, outputs=[wanted(4090)]))
        error("shared memory/output too small", lambda: client.infer(values, outputs=[wanted(0, 64)]))
        check("shared memory/unregister", unregistered)
        check("shared memory/unregister all", all_unregistered)
    finally:
        shared_memory.destroy_shared_memory_region(region)


def settings_of(answer):
    """gRPC wraps each setting in its own message."""
    return answer.get("settings", answer)


def trace_settings(answer):
    found = settings_of(answer)
    assert TRACE_SETTINGS <= set(found), set(found)
    return {"settings": found}


def update_trace(client):
    def rate(answer):
        value = settings_of(answer)["trace_rate"]
        return value if isinstance(value, str) else value["value"][0]

    before = rate(client.api.get_trace_settings(**client.json()))
    changed = rate(client.api.update_trace_settings(settings={"trace_rate": "123"}, **client.json()))
    assert changed == "123", changed
    assert rate(client.api.get_trace_settings(**client.json())) == "123"
    of_model = client.api.update_trace_settings(client.model, {"trace_rate": "77"}, **client.json())
    assert rate(of_model) == "77", of_model
    assert rate(client.api.get_trace_settings(**client.json())) == "123"
    client.api.update_trace_settings(client.model, {"trace_rate": None}, **client.json())
    assert rate(client.api.get_trace_settings(client.model, **client.json())) == "123"
    client.api.update_trace_settings(settings={"trace_rate": before}, **client.json())
    return {"rate": before}


def log_settings(answer):
    found = settings_of(answer)
    assert LOG_SETTINGS <= set(found), set(found)
    return {"settings": found}


def update_log(client):
    def level(answer):
        value = settings_of(answer)["log_verbose_level"]
        return value if isinstance(value, int) else int(value["uint32_param"])

    before = level(client.api.get_log_settings(**client.json()))
    assert level(client.api.update_log_settings({"log_verbose_level": 1}, **client.json())) == 1
    assert level(client.api.get_log_settings(**client.json())) == 1
    client.api.update_log_settings({"log_verbose_level": before, "log_info": True}, **client.json())
    assert level(client.api.get_log_settings(**client.json())) == before
    return {}


def load_again(client):
    client.api.load_model(client.model)
    assert client.api.is_model_ready(client.model)
    return client.echoed()


def unload_and_load(client):
    client.api.unload_model(client.model)
    deadline = time.monotonic() + 20
    while client.api.is_model_ready(client.model):
        assert time.monotonic() < deadline, "still ready 20 s after it was unloaded"
        time.sleep(0.05)
    gone = refused(lambda: client.infer())
    client.api.load_model(client.model)
    assert client.api.is_model_ready(client.model), "not ready when load answered"
    client.echoed()
    return {"status": gone["status"], "message": gone["message"]}


def run_http(checks, client):
    """What only HTTP has: tensors as JSON, and the two forms mixed."""

    def infer(**options):
        result = client.infer(inputs=[client.input(rows(), binary=False)], **options)
        same(result.as_numpy("OUTPUT"), rows())
        return client.response(result)

    checks.check("http/infer/JSON", lambda: infer(outputs=[client.output(binary=False)]))
    checks.check("http/infer/JSON to binary", lambda: infer(outputs=[client.output(binary=True)]))
    checks.check("http/infer/binary to JSON", lambda: client.echoed(outputs=[client.output(binary=False)]))
    for algorithm in ("gzip", "deflate"):
        both = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        checks.check(
            f"http/infer/JSON {algorithm}", lambda both=both: infer(outputs=[client.output(binary=False)], **both)
        )
    texts = set(TYPES) - ONLY_BINARY

    def mixed():
        outputs = [client.output(f"OUT_{datatype}", binary=datatype not in texts) for datatype in TYPES]
        result = client.infer(inputs=type_inputs(client, texts), outputs=outputs, model="types")
        for datatype, values in TYPES.items():
            same(result.as_numpy(f"OUT_{datatype}"), values)
        return {"outputs": sorted(client.response(result)["outputs"])}

    checks.check("http/types/all JSON that can be", mixed)

    def text_of(datatype):
        """Triton refuses to write these types as JSON; a server that does must write the right numbers."""
        outputs = [client.output(f"OUT_{datatype}", binary=False)]
        try:
            result = client.infer(inputs=type_inputs(client), outputs=outputs, model="types")
        except InferenceServerException as error:
            assert error.message(), "an error without a message"
            return {"status": error.status(), "message": error.message()}
        written = result.get_response()["outputs"][0]["data"]
        assert numpy.array_equal(numpy.array(written, TYPES[datatype].dtype), TYPES[datatype].flatten()), written
        return {"status": "200"}

    for datatype in sorted(ONLY_BINARY):
        checks.check(f"http/JSON {datatype} output", lambda datatype=datatype: text_of(datatype))


def run_grpc(checks, client, address):
    """What only gRPC has: streams, typed contents, deadlines."""
    import grpc

    def stream(requests):
        """Sends all, then waits for an answer to each; in the order in which they came."""
        answers = queue.Queue()
        client.api.start_stream(lambda result, error: answers.put((result, error)))
        try:
            for options in requests:
                client.api.async_stream_infer(**options)
            return [answers.get(timeout=20) for _ in requests]
        finally:
            client.api.stop_stream()

    def request(number, **options):
        return {
            "model_name": client.model, "inputs": [client.input(rows(1, start=10.0 * number))],
            "request_id": str(number), **options,
        }

    def several():
        answers = stream([request(number) for number in range(6)])
        for result, error in answers:
            assert error is None, error
            number = int(result.get_response().id)
            same(result.as_numpy("OUTPUT"), rows(1, start=10.0 * number))
        return {"ids": sorted(result.get_response().id for result, _ in answers)}

    def with_errors():
        wrong = request(2, model_name="no-such-model")
        short = request(4, inputs=[client.input(numpy.zeros((1, 8), numpy.float32))])
        answers = stream([request(1), wrong, request(3), short, request(5)])
        good = sorted(result.get_response().id for result, error in answers if error is None)
        bad = sorted((error.status() or "none", error.message()) for _, error in answers if error is not None)
        assert good == ["1", "3", "5"], good
        assert len(bad) == 2, bad
        return {"good": good, "statuses": [status for status, _ in bad], "messages": [text for _, text in bad]}

    def final_response():
        answers = stream([request(7, enable_empty_final_response=True)])
        result, error = answers[0]
        assert error is None, error
        same(result.as_numpy("OUTPUT"), rows(1, start=70.0))
        final = result.get_response().parameters["triton_final_response"]
        return {"triton_final_response": final.bool_param}

    checks.check("grpc/stream/several", several)
    checks.check("grpc/stream/errors", with_errors)
    checks.check("grpc/stream/final response", final_response)

    channel = grpc.insecure_channel(address)
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def message(**changes):
        tensor = service_pb2.ModelInferRequest.InferInputTensor(name="INPUT", datatype="FP32", shape=[1, 16])
        tensor.contents.fp32_contents.extend(changes.pop("contents", rows().flatten().tolist()))
        return service_pb2.ModelInferRequest(model_name=client.model, inputs=[tensor], **changes)

    def typed():
        answer = stub.ModelInfer(message(id="typed"), timeout=20)
        # Triton answers raw whatever it was asked with.
        assert numpy.frombuffer(answer.raw_output_contents[0], numpy.float32).tolist() == rows().flatten().tolist()
        return {"id": answer.id, "outputs": [[one.name, one.datatype, list(one.shape)] for one in answer.outputs]}

    def typed_types():
        fields = {
            "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
            "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
            "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
        }
        request = service_pb2.ModelInferRequest(model_name="types")
        for datatype, values in TYPES.items():
            tensor = request.inputs.add(name=f"IN_{datatype}", datatype=datatype, shape=[1, 3])
            if datatype in fields:
                getattr(tensor.contents, fields[datatype]).extend(values.flatten().tolist())
        answer = stub.ModelInfer(request, timeout=20)
        return [one.name for one in answer.outputs]

    def rpc_refused(request, **options):
        try:
            answer = stub.ModelInfer(request, timeout=20, **options)
        except grpc.RpcError as error:
            return {"status": str(error.code()), "message": error.details()}
        raise AssertionError(f"was answered and should have been refused: {answer}")

    checks.check("grpc/typed contents", typed)
    # FP16 and BF16 have no typed field, so a request with them and typed contents mixes the two forms.
    checks.check("grpc/error/typed contents without a field for FP16", lambda: capture(typed_types))
    checks.check(
        "grpc/error/typed and raw mixed", lambda: rpc_refused(message(raw_input_contents=[rows().tobytes()]))
    )
    checks.check("grpc/error/typed too few", lambda: rpc_refused(message(contents=[1.0, 2.0])))
    checks.check("grpc/error/typed too many", lambda: rpc_refused(message(contents=[1.0] * 17)))
    checks.check("grpc/error/no inputs", lambda: rpc_refused(service_pb2.ModelInferRequest(model_name=client.model)))
    checks.check("grpc/error/no model name", lambda: rpc_refused(service_pb2.ModelInferRequest()))

    def priority_parameter(**value):
        request = message()
        for field, content in value.items():
            setattr(request.parameters["priority"], field, content)
        return request

    checks.check("grpc/priority as int64", lambda: bool(stub.ModelInfer(priority_parameter(int64_param=1), timeout=20)))
    checks.check("grpc/error/priority as text", lambda: rpc_refused(priority_parameter(string_param="x")))
    channel.close()


def capture(action):
    import grpc

    try:
        return {"answered": action()}
    except grpc.RpcError as error:
        return {"status": str(error.code()), "message": error.details()}


def run_raw(checks, address, model):
    """What tritonclient cannot send. Every error has a body of JSON with `error` in it."""
    host, port = address.rsplit(":", 1)
    tensor = {"name": "INPUT", "shape": [1, 16], "datatype": "FP32", "data": rows().flatten().tolist()}
    infer = f"/v2/models/{model}/infer"

    def send(method, path, body=b"", headers=()):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode()
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def ok(name, *request, **options):
        def action():
            status, content_type, body = send(*request, **options)
            assert status == 200, f"{status} {body[:200]}"
            result = {"status": status, "content_type": content_type}
            return {**result, "shape": shape_of(json.loads(body))} if body[:1] in (b"{", b"[") else result

        checks.check(f"raw/{name}", action)

    def strict(name, *request, **options):
        """What Triton takes and a stricter server may refuse, with an error that says why."""

        def action():
            status, content_type, body = send(*request, **options)
            assert status in (200, 400), f"{status} {body[:200]}"
            message = json.loads(body).get("error", "")
            assert status == 200 or message
            return {"status": status, "content_type": content_type}

        checks.check(f"raw/{name}", action)

    def bad(name, *request, **options):
        def action():
            status, content_type, body = send(*request, **options)
            assert 400 <= status < 600, f"{status} {body[:200]}"
            message = json.loads(body)["error"]
            assert isinstance(message, str) and message
            return {"status": status, "content_type": content_type, "message": message}

        checks.check(f"raw/{name}", action)

    def inputs(**changes):
        return {"inputs": [{**{key: value for key, value in tensor.items()}, **changes}]}

    def without(key):
        return {"inputs": [{name: value for name, value in tensor.items() if name != key}]}

    def text_with(last):
        """The request with something as its last number that Python would not write."""
        return json.dumps({"inputs": [tensor]}).replace("15.0]", f"{last}]")

    ok("health/live", "GET", "/v2/health/live")
    ok("health/ready", "GET", "/v2/health/ready")
    ok("model/ready", "GET", f"/v2/models/{model}/ready")
    bad("model/ready unknown", "GET", "/v2/models/no-such-model/ready")
    bad("path/unknown", "GET", "/nothing/here")
    bad("path/root", "GET", "/")
    bad("path/unknown model", "GET", "/v2/models/no-such-model")
    bad("path/infer unknown model", "POST", "/v2/models/no-such-model/infer", {"inputs": [tensor]})
    bad("path/infer unknown version", "POST", f"/v2/models/{model}/versions/99/infer", {"inputs": [tensor]})
    bad("path/version of letters", "GET", f"/v2/models/{model}/versions/one")
    bad("method/GET infer", "GET", infer)
    bad("method/DELETE infer", "DELETE", infer)
    bad("method/POST live", "POST", "/v2/health/live")
    bad("method/GET index", "GET", "/v2/repository/index")
    ok("index", "POST", "/v2/repository/index")
    ok("index/ready", "POST", "/v2/repository/index", {"ready": True})
    bad("index/ready of text", "POST", "/v2/repository/index", {"ready": "yes"})
    ok("unload unknown", "POST", "/v2/repository/models/no-such-model/unload")
    ok("infer", "POST", infer, {"inputs": [tensor]})
    ok("infer/no outputs asked", "POST", infer, {"inputs": [tensor], "outputs": []})
    strict("infer/nested data", "POST", infer, inputs(data=[tensor["data"][:8], tensor["data"][8:]]))
    ok("infer/unknown key", "POST", infer, {"inputs": [tensor], "surprise": 1})
    strict("infer/NaN", "POST", infer, text_with("NaN"))
    bad("body/empty", "POST", infer, b"")
    bad("body/not JSON", "POST", infer, '{"inputs":')
    bad("body/not UTF-8", "POST", infer, b'{"inputs":[{"name":"\xff\xfe"}]}')
    bad("body/list", "POST", infer, [])
    bad("body/no inputs", "POST", infer, {})
    bad("body/inputs not a list", "POST", infer, {"inputs": {}})
    bad("body/no input", "POST", infer, {"inputs": []})
    for key in ("name", "shape", "datatype", "data"):
        bad(f"body/without {key}", "POST", infer, without(key))
    bad("body/negative dimension", "POST", infer, inputs(shape=[-1, 16]))
    bad("body/dimension with a fraction", "POST", infer, inputs(shape=[1.5, 16]))
    bad("body/overflowing shape", "POST", infer, inputs(shape=[2**62, 16], data=[1.0]))
    bad("body/batch of none", "POST", infer, inputs(shape=[0, 16], data=[]))
    bad("body/unknown datatype", "POST", infer, inputs(datatype="FP99"))
    bad("body/data of text", "POST", infer, text_with('"a"'))
    bad("body/data with null", "POST", infer, text_with("null"))
    bad("body/number too large", "POST", infer, text_with("1e400"))
    bad("body/too few numbers", "POST", infer, inputs(data=[1.0] * 8))
    bad("body/too many numbers", "POST", infer, inputs(data=[1.0] * 17))
    bad("body/id not text", "POST", infer, {"id": 12, "inputs": [tensor]})
    bad("body/priority of text", "POST", infer, {"inputs": [tensor], "parameters": {"priority": "x"}})
    bad("body/negative timeout", "POST", infer, {"inputs": [tensor], "parameters": {"timeout": -5}})
    strict("body/list as parameter", "POST", infer, {"inputs": [tensor], "parameters": {"colour": [1]}})
    length = "Inference-Header-Content-Length"
    header = json.dumps({"inputs": [{**without("data")["inputs"][0], "parameters": {"binary_data_size": 64}}]}).encode()
    ok("header length/right", "POST", infer, header + rows().tobytes(), {length: str(len(header))}.items())
    bad("header length/too long", "POST", infer, header, {length: "5000"}.items())
    bad("header length/negative", "POST", infer, header, {length: "-5"}.items())
    bad("header length/not a number", "POST", infer, header, {length: "abc"}.items())
    bad("header length/zero", "POST", infer, header, {length: "0"}.items())
    bad("binary/too short", "POST", infer, header + bytes(60), {length: str(len(header))}.items())
    bad("binary/too long", "POST", infer, header + bytes(70), {length: str(len(header))}.items())
    bad("binary/missing", "POST", infer, header)
    bad("encoding/unsupported", "POST", infer, b"x", {"Content-Encoding": "br"}.items())
    bad("encoding/not gzip", "POST", infer, b"not gzip", {"Content-Encoding": "gzip"}.items())
    body = zlib.compress(json.dumps({"inputs": [tensor]}).encode())
    ok("encoding/deflate", "POST", infer, body, {"Content-Encoding": "deflate"}.items())
    bad("trace/wrong rate", "POST", "/v2/trace/setting", {"trace_rate": "x"})
    bad("trace/unknown model", "GET", "/v2/models/no-such-model/trace/setting")
    bad("trace/cannot move file", "POST", "/v2/trace/setting", {"trace_file": "x"})
    bad("logging/wrong level", "POST", "/v2/logging", {"log_verbose_level": "x"})
    bad("logging/wrong format", "POST", "/v2/logging", {"log_format": "x"})
    bad("logging/cannot move file", "POST", "/v2/logging", {"log_file": "x"})


# Which keys of a result are compared only when asked, because their wording is the server's own.
WORDING = {"message", "messages"}


def compare(results, recorded, wording):
    """Differences that count, and those that are meant."""
    differences, meant = [], []
    for name, wanted in recorded.items():
        if name not in results:
            continue
        found = results[name]
        if not (isinstance(wanted, dict) and isinstance(found, dict)):
            wanted, found = {"value": wanted}, {"value": found}
        for key in sorted(set(wanted) | set(found)):
            before, after = wanted.get(key), found.get(key)
            if before == after or (key in WORDING and not wording):
                continue
            reason = deliberate(name, key, before, after)
            line = f"{name}: {key} is {json.dumps(after)}, Triton {json.dumps(before)}"
            (differences if reason is None else meant).append(line if reason is None else f"{line} ({reason})")
    return differences, meant


def deliberate(name, key, before, after):
    for pattern, field, instead, reason in DELIBERATE:
        if fnmatch.fnmatch(name, pattern) and fnmatch.fnmatch(key, field):
            # A check that failed is never meant.
            if key != "failed" and (instead is None or instead.get(before) == after):
                return reason
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", metavar="HOST:PORT", help="leave HTTP out by not naming it")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="leave gRPC out by not naming it")
    parser.add_argument("--model", default="echo", help="the echo model's name [echo]")
    parser.add_argument("--only", metavar="PATTERN", help="only checks like this, such as 'http/infer/*'")
    parser.add_argument("--out", metavar="FILE", help="write the results here as JSON")
    parser.add_argument("--compare", metavar="FILE", help="fail on differences from these results")
    parser.add_argument("--wording", action="store_true", help="also compare what error messages say")
    arguments = parser.parse_args()
    if not arguments.http and not arguments.grpc:
        parser.error("name a server with --http or --grpc")

    checks = Checks(arguments.only)
    if arguments.http:
        client = Client("http", arguments.http, arguments.model)
        run_http(checks, client)
        run_raw(checks, arguments.http, arguments.model)
        run_common(checks, client)
    if arguments.grpc:
        client = Client("grpc", arguments.grpc, arguments.model)
        run_grpc(checks, client, arguments.grpc)
        run_common(checks, client)

    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(checks.results, file, indent=1, sort_keys=True, ensure_ascii=False)
            file.write("\n")
    differences = []
    if arguments.compare:
        with open(arguments.compare, encoding="utf-8") as file:
            differences, meant = compare(checks.results, json.load(file), arguments.wording)
        for line in meant:
            print(f"meant   {line}")
        for line in differences:
            print(f"DIFFERS {line}")
    print(f"{len(checks.results)} checks, {len(checks.failed)} failed, {len(differences)} differences")
    return 1 if checks.failed or differences else 0


if __name__ == "__main__":
    sys.exit(main())
