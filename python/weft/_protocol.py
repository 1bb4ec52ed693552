"""What node and worker say to each other: the Python side of ``crates/node/src/protocol.rs``, which describes it.

Invariants: one message is answered by one message, and between the two the shared memory belongs to whoever must speak
next. Equal batches come as equal messages, so what was made of one is kept and used again.
"""

import mmap
import os
import socket
import struct
from typing import NamedTuple

import numpy as np

SETUP, RUN, HELLO, FAILED, ANSWER, REFUSE = range(1, 7)
MESSAGE_BYTES_MAX = 128 * 1024
TEXT_BYTES_MAX = 16 * 1024
ALIGNMENT = 64

_HEADER = struct.Struct("<BBHIQ")
_TENSOR = struct.Struct("<BBHIQQ")
_LENGTH = struct.Struct("<I")

#: How many different messages are remembered. Batches of a few sizes and shapes make up nearly all of them.
_REMEMBERED_MAX = 256


class Closed(Exception):
    """The node is gone or has closed the socket."""


class Unusable(TypeError):
    """What a model returned cannot be sent. The text says what it is and what to do."""


class DataType:
    """The protocol's data types: their words, in the order of their numbers, and numpy's types for them."""

    NAMES = (
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "BF16", "FP32", "FP64", "BYTES",
    )  # fmt: skip
    NUMPY = tuple(
        np.dtype(word)
        for word in ("?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<u2", "<f4", "<f8", "O")
    )
    BF16 = NAMES.index("BF16")
    BYTES = NAMES.index("BYTES")

    @staticmethod
    def parse(word):
        """The protocol's word for a word of the protocol or a type of numpy."""
        if isinstance(word, str) and word.upper() in DataType.NAMES:
            return word.upper()
        try:
            return DataType.NAMES[number_of(np.dtype(word))]
        except (KeyError, TypeError):
            allowed = ", ".join(DataType.NAMES)
            raise ValueError(f"{word!r} is no data type; these are: {allowed}") from None


class Tensor(NamedTuple):
    """A tensor as a model declares it: its name, its type's word and its dimensions, -1 where any will do."""

    name: str
    datatype: str
    shape: tuple

    @staticmethod
    def of(written):
        """What a model's class or a deployment wrote: a ``Tensor``, a tuple or a dictionary."""
        try:
            if isinstance(written, dict):
                written = (written["name"], written["datatype"], written["shape"])
            name, datatype, shape = written
            shape = tuple(int(dimension) for dimension in shape)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{written!r} is no tensor: (name, datatype, shape) is expected") from None
        return Tensor(str(name), DataType.parse(datatype), shape)


#: BF16 is missing: an array of uint16 says UINT16, unless the model declares otherwise.
_NUMBERS = {
    dtype: number for number, dtype in enumerate(DataType.NUMPY) if number not in (DataType.BF16, DataType.BYTES)
}


def number_of(dtype):
    """The number of the data type that elements of this numpy type travel as."""
    if dtype.kind in "OSU":
        return DataType.BYTES
    if dtype.name == "bfloat16":  # as the package `ml_dtypes` calls it
        return DataType.BF16
    number = _NUMBERS.get(dtype)
    if number is None:
        number = _NUMBERS.get(dtype.newbyteorder("<"))
    if number is None:
        raise Unusable(f"predict returned an array of {dtype}, which cannot be sent: convert it to what is declared")
    return number


def unpack_bytes(data, shape):
    """An array of ``bytes`` objects from elements that each carry their length."""
    array = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=object)
    at = 0
    for index in range(array.size):
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        array[index] = bytes(data[at : at + length])
        at += length
    return array.reshape(shape)


def pack_bytes(array):
    """The elements of an array of ``bytes`` or ``str``, each with its length."""
    parts = []
    for element in array.reshape(-1):
        if isinstance(element, str):
            element = element.encode()
        elif not isinstance(element, bytes):
            kind = type(element).__name__
            raise Unusable(f"predict returned an array of objects, one of which is a {kind}, not bytes or str")
        parts.append(_LENGTH.pack(len(element)))
        parts.append(element)
    return b"".join(parts)


class Channel:
    """The socket to the node and the memory shared with it."""

    def __init__(self, connection):
        self.connection = connection
        self._buffer = bytearray(MESSAGE_BYTES_MAX)
        self._view = memoryview(self._buffer)
        self._layouts = {}
        self._answers = {}
        self.outputs = ()

    def set_up(self):
        """Waits for the first message, maps the memory that comes with it and returns its text, or None when the
        node is gone."""
        message, files, _, _ = socket.recv_fds(self.connection, MESSAGE_BYTES_MAX, 2)
        if not message:
            return None
        if message[0] != SETUP or len(files) != 2:
            raise ValueError("the first message is not the one expected")
        self._input_file, self._output_file = files
        self._map_inputs(os.fstat(self._input_file).st_size)
        self._map_outputs(os.fstat(self._output_file).st_size)
        return message[1:].decode()

    def receive(self):
        """Waits for a batch and returns its message, or None when the node has closed the socket."""
        try:
            length = self.connection.recv_into(self._buffer)
        except ConnectionError:
            return None
        return bytes(self._view[:length]) if length else None

    def send_text(self, kind, text):
        """Sends a message with a text."""
        data = text.encode("utf-8", "replace")
        if kind in (FAILED, REFUSE) and len(data) > TEXT_BYTES_MAX:
            data = data[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
        self._send(bytes([kind]) + data)

    def _send(self, message):
        # Not for a model's own trouble with connections to be taken for this.
        try:
            self.connection.send(message)
        except ConnectionError:
            raise Closed from None

    # Inputs: views of memory that the node wrote.

    def inputs(self, message):
        """The tensors of a batch, by name: read-only views, valid until the answer is sent."""
        layout = self._layouts.get(message)
        if layout is None:
            layout = self._read_layout(message)
        memory = self._input_memory
        arrays = {}
        for name, shape, dtype, offset, length in layout:
            if length is None:
                arrays[name] = np.ndarray(shape, dtype, memory, offset)
            else:
                arrays[name] = unpack_bytes(memory[offset : offset + length], shape)
        return arrays

    def _read_layout(self, message):
        kind, _, count, _, size = _HEADER.unpack_from(message)
        if kind != RUN:
            raise ValueError(f"a message of kind {kind} is not expected")
        if size > self._input_size:
            self._map_inputs(size)
        layout = []
        at = _HEADER.size
        for _ in range(count):
            number, dimensions, name_bytes, _, offset, length = _TENSOR.unpack_from(message, at)
            at += _TENSOR.size
            shape = struct.unpack_from(f"<{dimensions}q", message, at)
            at += 8 * dimensions
            name = message[at : at + name_bytes].decode()
            at += name_bytes
            is_bytes = number == DataType.BYTES
            layout.append((name, shape, DataType.NUMPY[number], offset, length if is_bytes else None))
        if len(self._layouts) >= _REMEMBERED_MAX:
            self._layouts.clear()
        self._layouts[message] = layout
        return layout

    def _map_inputs(self, size):
        # Views of the old mapping that a model kept stay valid: the mapping lives until the last of them is gone.
        self._input_memory = mmap.mmap(self._input_file, size, access=mmap.ACCESS_READ)
        self._input_size = size

    # Outputs: arrays copied into memory that the node reads.

    def answer(self, names, arrays):
        """Sends what a model answered to a batch."""
        key = (names, *[(array.dtype, array.shape) for array in arrays])
        ready = self._answers.get(key)
        if ready is None:
            ready = self._prepare_answer(key, names, arrays)
        message, views = ready
        for view, array in zip(views, arrays):
            view[...] = array
        self._send(message)

    def _prepare_answer(self, key, names, arrays):
        declared = {tensor.name: tensor.datatype for tensor in self.outputs}
        places, packed, at = [], {}, 0
        for index, (name, array) in enumerate(zip(names, arrays)):
            number = number_of(array.dtype)
            if declared.get(name) == "BF16" and array.dtype == np.uint16:
                number = DataType.BF16
            if number == DataType.BYTES:
                packed[index] = pack_bytes(array)
                length = len(packed[index])
            else:
                length = array.size * DataType.NUMPY[number].itemsize
            places.append((name.encode(), number, array.shape, at, length))
            at += -(-length // ALIGNMENT) * ALIGNMENT
        self._reserve(at)

        message = [_HEADER.pack(ANSWER, 0, len(places), 0, self._output_size)]
        views = []
        for index, (name, number, shape, offset, length) in enumerate(places):
            message.append(_TENSOR.pack(number, len(shape), len(name), 0, offset, length))
            message.append(struct.pack(f"<{len(shape)}q", *shape))
            message.append(name)
            if index in packed:
                self._output_memory[offset : offset + length] = packed[index]
            else:
                # In the array's own type, save for its byte order: then numpy copies and does not convert.
                dtype = arrays[index].dtype.newbyteorder("<") if number != DataType.BF16 else arrays[index].dtype
                views.append(np.ndarray(shape, dtype, self._output_memory, offset))
        message = b"".join(message)
        if len(message) > MESSAGE_BYTES_MAX:
            raise ValueError(f"{len(places)} outputs are too many")
        if packed:
            # The lengths of strings are in no key, so this answer is not kept.
            numeric = [array for index, array in enumerate(arrays) if index not in packed]
            for view, array in zip(views, numeric):
                view[...] = array
            return message, ()
        if len(self._answers) >= _REMEMBERED_MAX:
            self._answers.clear()
        self._answers[key] = (message, views)
        return message, views

    def _reserve(self, size):
        if size > self._output_size:
            size = 1 << (size - 1).bit_length()
            # Answers that are kept hold views of the old mapping.
            self._answers.clear()
            os.ftruncate(self._output_file, size)
            self._map_outputs(size)

    def _map_outputs(self, size):
        self._output_memory = mmap.mmap(self._output_file, size)
        self._output_size = size
