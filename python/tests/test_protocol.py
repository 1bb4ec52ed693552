"""The Python side of the protocol, with a node played by the test.

    PYTHONPATH=python python -m unittest discover python/tests
"""

import json
import os
import socket
import struct
import sys
import tempfile
import threading
import unittest

import numpy as np

import weft
from weft import _protocol as protocol
from weft import worker

HEADER = struct.Struct("<BBHIQ")
TENSOR = struct.Struct("<BBHIQQ")


def segment(size=4096):
    """A memory file as the node makes them."""
    file = os.memfd_create("test")
    os.ftruncate(file, size)
    return file


class Node:
    """The other end of a channel."""

    def __init__(self):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.inputs, self.outputs = segment(), segment()
        socket.send_fds(self.socket, [bytes([protocol.SETUP]) + b"{}"], [self.inputs, self.outputs])
        self.channel = protocol.Channel(theirs)
        assert self.channel.set_up() == "{}"

    def close(self):
        """Hangs up."""
        self.socket.close()
        self.channel.connection.close()
        os.close(self.inputs)
        os.close(self.outputs)

    def run(self, *tensors):
        """Sends tensors, each (name, number of its type, shape, bytes)."""
        message, at = [], 0
        for name, number, shape, data in tensors:
            end = at + len(data)
            if end > os.fstat(self.inputs).st_size:
                os.ftruncate(self.inputs, end)
            os.pwrite(self.inputs, data, at)
            message.append(TENSOR.pack(number, len(shape), len(name), 0, at, len(data)))
            message.append(struct.pack(f"<{len(shape)}q", *shape) + name.encode())
            at = -(-end // 64) * 64
        header = HEADER.pack(protocol.RUN, 0, len(tensors), 0, os.fstat(self.inputs).st_size)
        self.socket.send(header + b"".join(message))

    def answer(self):
        """The tensors of an answer, or the text of another message."""
        message = self.socket.recv(protocol.MESSAGE_BYTES_MAX)
        if message[0] != protocol.ANSWER:
            return message[1:].decode()
        _, _, count, _, size = HEADER.unpack_from(message)
        assert size == os.fstat(self.outputs).st_size
        at, tensors = HEADER.size, []
        for _ in range(count):
            number, dimensions, name_bytes, _, offset, length = TENSOR.unpack_from(message, at)
            at += TENSOR.size
            shape = struct.unpack_from(f"<{dimensions}q", message, at)
            at += 8 * dimensions
            name = message[at : at + name_bytes].decode()
            at += name_bytes
            tensors.append((name, number, shape, os.pread(self.outputs, length, offset)))
        assert at == len(message)
        return tensors


class ChannelTest(unittest.TestCase):
    def setUp(self):
        self.node = Node()
        self.addCleanup(self.node.close)
        self.channel = self.node.channel

    def echo(self, *tensors):
        self.node.run(*tensors)
        arrays = self.channel.inputs(self.channel.receive())
        self.channel.answer(tuple(arrays), list(arrays.values()))
        return self.node.answer(), arrays

    def test_every_type_comes_back(self):
        for number, dtype in enumerate(protocol.DataType.NUMPY):
            if number in (protocol.DataType.BYTES, protocol.DataType.BF16):
                continue
            tensor = ("x", number, (2, 1), b"\1" * (2 * dtype.itemsize))
            answered, arrays = self.echo(tensor)
            self.assertEqual(answered, [tensor])
            self.assertEqual(arrays["x"].dtype, dtype)
            self.assertFalse(arrays["x"].flags.writeable)

    def test_strings(self):
        tensor = ("x", protocol.DataType.BYTES, (3,), b"\2\0\0\0ab\0\0\0\0\1\0\0\0\xff")
        answered, arrays = self.echo(tensor)
        self.assertEqual(answered, [tensor])
        self.assertEqual(list(arrays["x"]), [b"ab", b"", b"\xff"])
        # Longer ones of the same shape: nothing of the first may be used again.
        tensor = ("x", protocol.DataType.BYTES, (3,), b"\1\0\0\0z\3\0\0\0abc\0\0\0\0")
        self.assertEqual(self.echo(tensor)[0], [tensor])
        self.channel.answer(("y",), [np.array(["ä", "b"])])
        self.assertEqual(self.node.answer(), [("y", 13, (2,), b"\2\0\0\0\xc3\xa4\1\0\0\0b")])
        with self.assertRaisesRegex(TypeError, "not bytes or str"):
            self.channel.answer(("y",), [np.array([1, None], dtype=object)])

    def test_strings_beside_numbers(self):
        text = ("a", protocol.DataType.BYTES, (1,), b"\1\0\0\0z")
        number = ("b", 7, (1,), b"\4\3\2\1")
        self.assertEqual(self.echo(text, number)[0], [text, number])
        self.assertEqual(self.echo(number, text)[0], [number, text])

    def test_equal_messages_with_other_data(self):
        for value in (b"\1\0\0\0", b"\2\0\0\0", b"\3\0\0\0"):
            self.assertEqual(self.echo(("x", 7, (1,), value))[0], [("x", 7, (1,), value)])

    def test_growth_on_both_sides(self):
        for size in (10, 300_000, 20, 2_000_000):
            data = os.urandom(size)
            self.assertEqual(self.echo(("x", 1, (size,), data))[0], [("x", 1, (size,), data)])

    def test_outputs_of_other_layouts(self):
        array = np.arange(6, dtype=">i4").reshape(2, 3)
        self.channel.answer(("y",), [array.T])
        self.assertEqual(self.node.answer(), [("y", 7, (3, 2), array.T.astype("<i4").tobytes())])
        with self.assertRaisesRegex(TypeError, "complex128"):
            self.channel.answer(("y",), [np.zeros(1, complex)])

    def test_bf16_travels_as_its_bits(self):
        self.channel.outputs = [weft.Tensor("y", "BF16", (-1,))]
        self.channel.answer(("y",), [np.array([0x3F80], np.uint16)])
        self.assertEqual(self.node.answer(), [("y", protocol.DataType.BF16, (1,), b"\x80\x3f")])

    def test_nothing_is_reused_that_a_model_may_have_changed(self):
        self.node.run(("x", 7, (2, 1), bytes(8)))
        message = self.channel.receive()
        self.channel.inputs(message)["x"].shape = (1, 2)
        self.assertEqual(self.channel.inputs(message)["x"].shape, (2, 1))


class ArrangeTest(unittest.TestCase):
    def test_what_predict_may_return(self):
        one, two = np.zeros(1), np.ones(1)
        check = lambda answered, names: [array[0] for array in worker.arrange(answered, names)[1]]
        self.assertEqual(check({"b": two, "a": one}, ("a", "b")), [0, 1])
        self.assertEqual(check([one, two], ("a", "b")), [0, 1])
        self.assertEqual(check(two, ("a",)), [1])
        self.assertEqual(check([[5.0]], ("a",)), [5])
        self.assertEqual(worker.arrange({"z": one}, ())[0], ("z",))
        self.assertEqual(worker.arrange(one, ())[0], ("output",))
        for wrong in ({"a": one}, {"a": one, "c": two}, [one], None):
            with self.assertRaises((ValueError, TypeError)):
                worker.arrange(wrong, ("a", "b"))


class LoadTest(unittest.TestCase):
    SETUP = {"max_batch": 8, "inputs": [], "outputs": []}

    def load(self, text, name=None, **setup):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a_model.py")
            with open(path, "w") as file:
                file.write(text)
            try:
                return worker.load(path, name, {**self.SETUP, **setup})
            finally:
                sys.path.remove(folder)
                sys.modules.pop("a_model", None)

    def test_the_deployment_says_what_the_class_does_not(self):
        tensor = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
        _, info = self.load("class M:\n def predict(self, inputs): pass", inputs=[tensor])
        self.assertEqual(info, {"max_batch": 8, "inputs": [tensor], "outputs": []})
        text = "class M:\n inputs = [('z', 'int8', [-1])]\n max_batch = 2\n def predict(self, inputs): pass"
        _, info = self.load(text, inputs=[tensor])
        self.assertEqual(info["inputs"], [{"name": "z", "datatype": "INT8", "shape": [-1]}])
        self.assertEqual(info["max_batch"], 2)
        json.dumps(info)

    def test_which_class(self):
        two = "class A:\n def predict(self, inputs): pass\nclass B(A): pass"
        self.assertEqual(type(self.load(two, "B")[0]).__name__, "B")
        with self.assertRaisesRegex(ValueError, "found: A, B"):
            self.load(two)
        with self.assertRaisesRegex(ValueError, "no class `C`"):
            self.load(two, "C")
        with self.assertRaisesRegex(ValueError, "found: none"):
            self.load("from weft import Model")


class ServeTest(unittest.TestCase):
    def test_a_batch_that_fails_does_not_end_the_worker(self):
        node = Node()
        self.addCleanup(node.close)
        node.channel.outputs = [weft.Tensor("y", "INT32", (-1,))]

        class Picky:
            def predict(self, inputs):
                if inputs["x"][0] == 0:
                    raise KeyError("zero")
                return inputs["x"]

        thread = threading.Thread(target=worker.serve, args=(node.channel, Picky()))
        sys.stderr, stderr = open(os.devnull, "w"), sys.stderr
        thread.start()
        node.run(("x", 7, (1,), bytes(4)))
        self.assertEqual(node.answer(), "KeyError: 'zero'")
        sys.stderr.close()
        sys.stderr = stderr
        node.run(("x", 7, (1,), b"\1\0\0\0"))
        self.assertEqual(node.answer(), [("y", 7, (1,), b"\1\0\0\0")])
        node.socket.close()
        thread.join(10)
        self.assertFalse(thread.is_alive())

    def test_a_models_own_trouble_with_connections_is_not_the_nodes(self):
        node = Node()
        self.addCleanup(node.close)

        class Client:
            def predict(self, inputs):
                raise ConnectionResetError("the database hung up")

        thread = threading.Thread(target=worker.serve, args=(node.channel, Client()))
        sys.stderr, stderr = open(os.devnull, "w"), sys.stderr
        thread.start()
        for _ in range(2):
            node.run(("x", 7, (1,), bytes(4)))
            self.assertEqual(node.answer(), "ConnectionResetError: the database hung up")
        sys.stderr.close()
        sys.stderr = stderr
        node.socket.close()
        thread.join(10)
        self.assertFalse(thread.is_alive())


class ArrangeTest(unittest.TestCase):
    def test_what_is_no_array_is_named_and_what_to_do_is_said(self):
        async def waits():
            pass

        def yields():
            yield 1

        def check(answered, expected):
            with self.assertRaises(TypeError) as raised:
                worker.arrange(answered, ("y",))
            said = worker.describe(raised.exception)
            self.assertTrue(said.startswith("predict returned") and expected in said, said)

        check(None, "None: return a dictionary")
        check(waits(), "a coroutine: remove `async`, or return the awaited value")
        check(yields(), "a generator: return arrays instead of yielding them")
        check({"y": waits()}, "a coroutine")
        check({"y": None}, "None")
        check({"y": {"z": 1}}, "a dict where an array is expected")
        check({"z": 1}, "['z']; the outputs are ['y']")
        check({}, "[]; the outputs are ['y']")
        check([1, 2], "2 arrays; the outputs are ['y']")
        check([[[1], [1, 2]]], "no array")
        check({1, 2}, "a set")
        self.assertEqual(worker.arrange(5, ("y",))[1][0].shape, ())
        self.assertEqual(worker.describe(ValueError("one\n  two")), "ValueError: one two")


if __name__ == "__main__":
    unittest.main()
