"""Arrays and tensors as bytes that any process can map, and back.

::

    magic 8 bytes, length of the header u64, SHA-256 of the header 32 bytes, header, zeros up to a page, body

The header is JSON: the key, the length of the body, and for each tensor its name, whether it is numpy's or PyTorch's,
type, shape, strides and offset in the body, in bytes. Nothing in it is executed: types are looked up by name. The body
is memory as it lay: tensors that overlapped overlap again, so weights that were tied are tied, and a view that skips
elements skips them again.

The header is checked whenever it is read. The body is not: reading it all is what sharing saves, and it is believed
only while a process that mapped it lives (``_files.py``).
"""

import bisect
import ctypes
import hashlib
import json
import mmap
import os
import struct
import sys
from typing import NamedTuple

import numpy as np

MAGIC = b"WEFTWTS1"
_START = struct.Struct("<8sQ32s")
_ALIGNMENT = 64
_HEADER_BYTES_MAX = 64 << 20
_WRITE_BYTES_MAX = 1 << 30
#: Kinds of numpy's types whose elements are plain bytes.
_PLAIN = "biufcSUMm"
#: Not every Python has the name for it.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class Damaged(Exception):
    """Why a file cannot be what it should be."""


class Entry(NamedTuple):
    """A tensor in a header. Strides and offset are in bytes."""

    name: str
    library: str
    dtype: str
    shape: tuple
    strides: tuple
    offset: int

    def span(self, itemsize):
        """Where the tensor's bytes begin and end, from where its first element lies."""
        if 0 in self.shape:
            return 0, 0
        reach = [stride * (count - 1) for stride, count in zip(self.strides, self.shape)]
        return sum(min(0, each) for each in reach), sum(max(0, each) for each in reach) + itemsize


class Header(NamedTuple):
    """What a file says of itself."""

    key: str
    single: bool
    body_at: int
    body_bytes: int
    entries: tuple


class Image:
    """Values that are about to be written: a header, and pieces of this process's memory."""

    def __init__(self, key, value, library=None):
        single = not isinstance(value, dict)
        named = {"": value} if single else value
        mover = _Mover()
        described = [_describe(name, each, mover) for name, each in named.items()]
        for entry, _, _ in described:
            if library not in (None, entry.library):
                raise TypeError(f"`{entry.name}` is an array of {entry.library}, which cannot lie on a GPU")
        # They keep the memory that is pointed to.
        self._kept = [kept for _, kept, _ in described]
        spans = []
        for entry, _, itemsize in described:
            low, high = entry.span(itemsize)
            spans.append((entry.offset + low, entry.offset + high))
        regions = _merge(sorted(span for span in spans if span[0] < span[1]))
        self.pieces, at = [], 0
        for low, high in regions:
            # As it lay, so that every element stays aligned.
            at = -(-at // _ALIGNMENT) * _ALIGNMENT + low % _ALIGNMENT
            self.pieces.append((at, low, high - low))
            at += high - low
        starts = [low for low, _ in regions]
        entries = []
        for (entry, _, _), (low, high) in zip(described, spans):
            offset = 0
            if low < high:
                piece_at, address, _ = self.pieces[bisect.bisect_right(starts, low) - 1]
                offset = piece_at + entry.offset - address
            entries.append(entry._replace(offset=offset))
        text = json.dumps({"key": key, "single": single, "bytes": at, "tensors": entries}).encode()
        self.body_bytes = at
        self.body_at = _body_at(len(text))
        start = _START.pack(MAGIC, len(text), hashlib.sha256(text).digest()) + text
        self.head = start.ljust(self.body_at, b"\0")

    def write_head(self, file):
        """Writes everything but the body."""
        _write(file, memoryview(self.head), 0)

    def write(self, file):
        """Writes everything."""
        os.truncate(file, self.body_at + self.body_bytes)
        self.write_head(file)
        for at, address, length in self.pieces:
            memory = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
            _write(file, memory, self.body_at + at)


def read(file, key, with_body=True):
    """Reads and checks a file's header. Raises :class:`Damaged`."""
    size = os.fstat(file).st_size
    start = os.pread(file, _START.size, 0)
    if len(start) < _START.size:
        raise Damaged("it is cut off")
    magic, length, digest = _START.unpack(start)
    if magic != MAGIC or length > _HEADER_BYTES_MAX:
        raise Damaged("it is something else")
    text = os.pread(file, length, _START.size)
    if len(text) != length or hashlib.sha256(text).digest() != digest:
        raise Damaged("its header is not as it was written")
    try:
        said = json.loads(text)
        entries = tuple(Entry(*entry[:3], tuple(entry[3]), tuple(entry[4]), entry[5]) for entry in said["tensors"])
        body_bytes = said["bytes"]
        header = Header(said["key"], said["single"], _body_at(length), body_bytes, entries)
        for entry in entries:
            low, high = entry.span(_itemsize(entry))
            plain = all(type(number) is int for number in (*entry.shape, *entry.strides, entry.offset))
            if not plain or min(entry.shape, default=0) < 0 or len(entry.shape) != len(entry.strides):
                raise ValueError(entry.name)
            if entry.offset + low < 0 or entry.offset + high > body_bytes:
                raise ValueError(entry.name)
    except (LookupError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise Damaged(f"its header makes no sense: {error}") from None
    if header.key != key:
        raise Damaged(f"it is of {header.key}")
    if size != header.body_at + (body_bytes if with_body else 0):
        raise Damaged(f"it has {size} bytes, not {header.body_at + body_bytes}")
    return header


def mapped(file, header):
    """The values in a file, without a copy: numpy's are read-only; PyTorch knows no read-only tensors, so what is
    written to one is this process's own."""
    values, read_only, storage = {}, None, None
    for entry in header.entries:
        if entry.library == "numpy":
            if read_only is None:
                read_only = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
            at = header.body_at + entry.offset
            values[entry.name] = np.ndarray(entry.shape, _numpy_type(entry), read_only, at, entry.strides)
        else:
            if storage is None:
                import torch

                flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
                memory = mmap.mmap(file, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
                storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
            values[entry.name] = _tensor_in(storage, header.body_at, entry)
    return _unwrap(header, values)


def on_gpu(memory, number, header):
    """The values in memory of a GPU, which is given as something with a ``__cuda_array_interface__``."""
    import torch

    storage = torch.as_tensor(memory, device=f"cuda:{number}").untyped_storage()
    return _unwrap(header, {entry.name: _tensor_in(storage, 0, entry) for entry in header.entries})


def _tensor_in(storage, start, entry):
    """A PyTorch tensor in memory that holds a body from `start` on."""
    import torch

    dtype = _torch_type(entry)
    strides = [stride // dtype.itemsize for stride in entry.strides]
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, (start + entry.offset) // dtype.itemsize, entry.shape, strides)


def _unwrap(header, values):
    """What was given to be shared: a dictionary, or one value."""
    return values[""] if header.single else values


def own(value, device, name=""):
    """A value that is not shared, in the form that it would have if it were."""
    if isinstance(value, dict):
        return {name: own(each, device, name) for name, each in value.items()}
    if is_torch(value):
        return value.detach().to(device)
    _refuse_strangers(name, value)
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view


def is_torch(value):
    """Whether it is a tensor of PyTorch's, which is not loaded for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class _Mover:
    """Brings tensors into the host's memory, each memory once, so that what was tied stays tied."""

    def __init__(self):
        self._moved = {}

    def to_host(self, tensor):
        if tensor.device.type == "cpu":
            return tensor
        storage = tensor.untyped_storage()
        place = (tensor.device, storage.data_ptr())
        if place not in self._moved:
            self._moved[place] = (storage, storage.cpu())
        empty = tensor.new_empty(0, device="cpu")
        return empty.set_(self._moved[place][1], tensor.storage_offset(), tensor.shape, tensor.stride())


def _describe(name, value, mover):
    """An entry with an address for an offset, what keeps the memory there, and the bytes of an element."""
    if not isinstance(name, str):
        raise TypeError(f"weights are named by strings, not {name!r}")
    if is_torch(value):
        import torch

        plain = type(value.detach()) is torch.Tensor and value.layout == torch.strided
        if not plain or value.is_quantized or value.is_meta or value.is_nested:
            raise TypeError(f"`{name}` is a tensor without plain memory and cannot be shared")
        tensor = mover.to_host(value.detach().resolve_conj().resolve_neg())
        itemsize = tensor.element_size()
        if tensor.data_ptr() % itemsize:
            tensor = tensor.clone()
        strides = tuple(stride * itemsize for stride in tensor.stride())
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Entry(name, "torch", dtype, tuple(tensor.shape), strides, tensor.data_ptr()), tensor, itemsize
    _refuse_strangers(name, value)
    array = np.asarray(value)
    dtype = array.dtype.str if array.dtype.kind in _PLAIN else array.dtype.name
    entry = Entry(name, "numpy", dtype, array.shape, array.strides, array.__array_interface__["data"][0])
    try:
        known = _numpy_type(entry) == array.dtype
    except (TypeError, ImportError, AttributeError):
        known = False
    if not known:
        raise TypeError(f"`{name}` is an array of {array.dtype}, which cannot be shared")
    return entry, array, array.itemsize


def _refuse_strangers(name, value):
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError(f"`{name}` is a {type(value).__name__}; arrays of numpy and tensors of PyTorch can be shared")


def _numpy_type(entry):
    """numpy's type; those that it lacks, such as bfloat16, come from the package `ml_dtypes`."""
    if entry.dtype[:1] in "<>|=":
        dtype = np.dtype(entry.dtype)
        if dtype.kind not in _PLAIN:
            raise TypeError(f"{entry.dtype} is not plain")
        return dtype
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, entry.dtype))


def _torch_type(entry):
    import torch

    dtype = getattr(torch, entry.dtype)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{entry.dtype} is no type of PyTorch's")
    return dtype


def _itemsize(entry):
    if entry.library == "numpy":
        return _numpy_type(entry).itemsize
    if entry.library == "torch":
        return _torch_type(entry).itemsize
    raise ValueError(f"nobody knows {entry.library}")


def _body_at(header_bytes):
    """Where the body begins: on a page of its own."""
    return -(-(_START.size + header_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE


def _merge(spans):
    """Spans in order, those that overlap made one."""
    merged = []
    for low, high in spans:
        if merged and low < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def _write(file, memory, at):
    while memory.nbytes:
        written = os.pwrite(file, memory[:_WRITE_BYTES_MAX], at)
        memory, at = memory[written:], at + written
