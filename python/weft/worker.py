"""A worker: a process with one model, which answers the batches its node hands it.

    python -m weft.worker --model FILE [--class NAME]

Its standard input is the socket to the node; the first message on it brings the shared memory. What the model prints
goes to standard output and error as usual, and from there to the worker's log. The process ends when the node closes
the socket or dies. Nothing here restarts, retries or times out: that is the node's part.
"""

import argparse
import ctypes
import gc
import importlib.util
import inspect
import json
import os
import signal
import socket
import sys
import traceback

import numpy as np

from ._protocol import FAILED, HELLO, REFUSE, Channel, Closed, Tensor, Unusable
from ._weights import Place, enter


def main(arguments=None):
    """Runs a worker until its node has no more use for it."""
    parser = argparse.ArgumentParser(prog="python -m weft.worker", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the file with the model's class")
    parser.add_argument("--class", dest="name", help="the class; the only one with a predict where this is not said")
    options = parser.parse_args(arguments)
    # Lines are seen when they are printed, though nobody watches from a terminal.
    sys.stdout.reconfigure(line_buffering=True, errors="replace")
    die_with_parent()

    channel = Channel(take_control_socket())
    setup = channel.set_up()
    if setup is None:
        return
    try:
        model, info = load(options.model, options.name, json.loads(setup))
    except Exception as error:
        traceback.print_exc()
        channel.send_text(FAILED, describe(error))
        sys.exit(1)
    channel.outputs = [Tensor.of(written) for written in info["outputs"]]
    # What was loaded stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    channel.send_text(HELLO, json.dumps(info))
    serve(channel, model)


def serve(channel, model):
    """Answers batches until the node closes the socket."""
    predict = model.predict
    names = tuple(tensor.name for tensor in channel.outputs)
    while True:
        message = channel.receive()
        if message is None:
            return
        try:
            try:
                answered = predict(channel.inputs(message))
                answer_names, arrays = arrange(answered, names)
                channel.answer(answer_names, arrays)
            except Closed:
                raise
            except Exception as error:
                traceback.print_exc()
                channel.send_text(REFUSE, describe(error))
        except Closed:
            return


def arrange(answered, names):
    """Names and arrays in the order of the outputs, from whatever `predict` may return."""
    if isinstance(answered, dict):
        if not names:
            names = tuple(answered)
        if len(answered) == len(names):
            try:
                return names, [as_array(answered[name]) for name in names]
            except KeyError:
                pass
        raise Unusable(f"predict returned {list(answered)}; the outputs are {list(names)}")
    if not isinstance(answered, (list, tuple)):
        answered = [as_array(answered)]
    if not names:
        names = tuple(f"output{index}" for index in range(len(answered))) if len(answered) > 1 else ("output",)
    if len(answered) != len(names):
        raise Unusable(f"predict returned {len(answered)} arrays; the outputs are {list(names)}")
    return names, [as_array(array) for array in answered]


def as_array(value):
    """An array of something like one."""
    if type(value) is np.ndarray:
        return value
    problem = what_is_wrong(value)
    if problem is not None:
        raise Unusable(f"predict returned {problem}")
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise Unusable(f"predict returned something that is no array: {error}") from error


def what_is_wrong(value):
    """What something is that no array can be made of, and what to do about it; None where nothing is wrong."""
    if value is None:
        return "None: return a dictionary from output names to arrays"
    if inspect.iscoroutine(value):
        value.close()
        return "a coroutine: remove `async`, or return the awaited value"
    if inspect.isawaitable(value):
        return f"a {type(value).__name__} that nobody awaits: return the awaited value"
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return "a generator: return arrays instead of yielding them"
    if isinstance(value, (dict, set, frozenset)) or callable(value) or hasattr(value, "__next__"):
        return f"a {type(value).__name__} where an array is expected: return arrays"
    return None


def load(path, name, setup):
    """Makes the model and finds out what it takes and gives."""
    place = setup.get("weights")
    enter(Place(**place, file=os.path.abspath(path)) if place else None)
    model = find_class(path, name)()
    if hasattr(model, "load"):
        model.load()
    max_batch = setup["max_batch"]
    own_max_batch = getattr(model, "max_batch", None)
    if own_max_batch is not None:
        if isinstance(own_max_batch, bool) or not isinstance(own_max_batch, int) or own_max_batch < 0:
            raise ValueError(f"max_batch is {own_max_batch!r}; it must be a number from 0")
        max_batch = min(max_batch, own_max_batch)
    info = {"max_batch": max_batch}
    for side in ("inputs", "outputs"):
        written = getattr(model, side, None) or setup[side]
        if isinstance(written, (str, bytes, dict)):
            raise ValueError(f"{side} is a {type(written).__name__}; a list of tensors is expected")
        tensors = [Tensor.of(each) for each in written]
        for tensor in tensors:
            if not tensor.name or sum(tensor.name == other.name for other in tensors) > 1:
                raise ValueError(f"{side} declare `{tensor.name}` more than once, or without a name")
            if any(dimension != -1 and dimension < 1 for dimension in tensor.shape):
                raise ValueError(
                    f"{side} declare `{tensor.name}` with shape {list(tensor.shape)}; dimensions are 1 or more, and -1 "
                    f"where any will do"
                )
            if max_batch > 0 and (not tensor.shape or tensor.shape[0] != -1):
                raise ValueError(
                    f"{side} declare `{tensor.name}` with shape {list(tensor.shape)}; the first dimension is the "
                    f"batch and must be -1 unless the model is deployed with max_batch = 0"
                )
        info[side] = [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)} for tensor in tensors
        ]
    return model, info


def find_class(path, name):
    """The model's class in a file."""
    path = os.path.abspath(path)
    # As for a program: a model finds the files beside it.
    sys.path.insert(0, os.path.dirname(path))
    module_name = os.path.splitext(os.path.basename(path))[0]
    if module_name in sys.modules:
        module_name = f"weft_model_{module_name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    if name is not None:
        found = getattr(module, name, None)
        if not inspect.isclass(found):
            raise ValueError(f"{path} has no class `{name}`")
        if not callable(getattr(found, "predict", None)):
            raise ValueError(f"class `{name}` has no method `predict`")
        return found
    own = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and each.__module__ == module_name and callable(getattr(each, "predict", None))
    ]
    if len(own) != 1:
        found = ", ".join(each.__name__ for each in own) or "none"
        raise ValueError(f"{path} must have one class with a predict, or `class` must say which; found: {found}")
    return own[0]


def describe(error):
    """An exception in one line: its type and what it says."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    if isinstance(error, Unusable):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def take_control_socket():
    """The socket to the node, moved away from standard input so that a model which reads that gets nothing."""
    try:
        connection = socket.socket(fileno=os.dup(0))
    except OSError:
        sys.exit("weft.worker: standard input is no socket; workers are started by Weft")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return connection


def die_with_parent():
    """Has the kernel kill this process when the node's thread that watches it is gone, even in the middle of a
    batch."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass  # The closed socket ends it too, after the batch.


if __name__ == "__main__":
    main()
