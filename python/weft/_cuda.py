"""Memory of a GPU that several processes have: the few calls of CUDA's driver that this takes, by `ctypes`.

There are two ways. ``file``: the memory is a file descriptor, as ``cuMemExportToShareableHandle`` gives it. CUDA frees
it when the last descriptor is closed and the last mapping is gone, whoever made it and however they end, and others can
map it for reading only. ``ipc``: a handle of ``cuIpcGetMemHandle``, where a machine has no such files. That memory is
its maker's: it must outlive all who opened it, and stay in its CUDA context.

PyTorch's own ``_share_cuda_`` is the second way with a counter in /dev/shm, which stays there when a process is killed,
and would make the keeper import PyTorch. Here PyTorch only sees a pointer, through ``__cuda_array_interface__``.
"""

import contextlib
import ctypes
import os

from ._files import Unshared

_FILE_SUPPORTED = (102, 103)  # virtual memory management; handles that are file descriptors
_PINNED, _ON_DEVICE, _AS_FILE = 1, 1, 1
_READ, _READ_WRITE = 1, 3
_LAZY_PEER_ACCESS = 1

WAYS = ("file", "ipc")


class CudaError(Unshared):
    """What the driver refused."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _IpcHandle(ctypes.Structure):
    """``CUipcMemHandle``, which travels by value."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Memory:
    """Memory of a GPU that another process made, as bytes. Whether it is read-only nobody can be told: PyTorch refuses
    what says that it is."""

    def __init__(self, way, address, read_only, length):
        self.way, self.address, self.read_only = way, address, read_only
        # There is memory, though there be no bytes in it.
        self.__cuda_array_interface__ = {
            "shape": (max(1, length),), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2,
        }  # fmt: skip


class Gpu:
    """One GPU, by the number that this process knows it by."""

    def __init__(self, number):
        self.number = number
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"there is no CUDA driver: {error}") from None
        self._call("cuInit", ctypes.c_uint(0))
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(number))

    def identity(self):
        """What tells this GPU from all others, whatever number a process knows it by."""
        identity = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", identity, self._device)
        return bytes(identity).hex()

    def ways(self):
        """The ways that may work here, the better one first."""
        value = ctypes.c_int()
        for attribute in _FILE_SUPPORTED:
            self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), self._device)
            if not value.value:
                return WAYS[1:]
        return WAYS

    @contextlib.contextmanager
    def current(self, release=False):
        """Makes the context that PyTorch uses too this thread's, meanwhile."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        try:
            self._call("cuCtxPushCurrent_v2", context)
            try:
                yield
            finally:
                self._call("cuCtxPopCurrent_v2", ctypes.byref(context))
        finally:
            # A context costs hundreds of megabytes, and a worker needs it to the end.
            if release:
                self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def make(self, way, address, length):
        """Copies memory of this process to the GPU. Gives what others need to open it: a file descriptor, or bytes."""
        return self._make_file(address, length) if way == "file" else self._make_handle(address, length)

    def open(self, way, given, length):
        """Memory that another process made. It stays mapped until this process ends."""
        with self.current():
            if way == "file":
                return Memory(way, *self._open_file(given, length), length)
            return Memory(way, self._open_handle(given), False, length)

    def _make_file(self, address, length):
        file, size = ctypes.c_int(-1), ctypes.c_size_t()
        with self.current(release=True):
            handle = ctypes.c_uint64()
            properties = _Properties(_PINNED, _AS_FILE, _Location(_ON_DEVICE, self.number))
            size.value = self._round_up(length)
            self._call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), _nothing())
            try:
                pointer = self._map(handle, size, _READ_WRITE)
                try:
                    self._copy(pointer, address, length)
                    as_file = ctypes.c_int(_AS_FILE)
                    self._call("cuMemExportToShareableHandle", ctypes.byref(file), handle, as_file, _nothing())
                finally:
                    self._call("cuMemUnmap", pointer, size)
                    self._call("cuMemAddressFree", pointer, size)
            finally:
                self._call("cuMemRelease", handle)
        os.set_inheritable(file.value, False)
        return file.value

    def _open_file(self, file, length):
        handle, size = ctypes.c_uint64(), ctypes.c_size_t(self._round_up(length))
        as_file = ctypes.c_int(_AS_FILE)
        self._call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(file), as_file)
        try:
            return self._map(handle, size, _READ).value, True
        except CudaError:
            # Not every driver can map for reading only.
            return self._map(handle, size, _READ_WRITE).value, False
        finally:
            self._call("cuMemRelease", handle)

    def _make_handle(self, address, length):
        pointer, handle = ctypes.c_uint64(), _IpcHandle()
        with self.current():
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(1, length)))
            self._copy(pointer, address, length)
            self._call("cuIpcGetMemHandle", ctypes.byref(handle), pointer)
        return bytes(handle.bytes)

    def _open_handle(self, given):
        pointer, handle = ctypes.c_uint64(), _IpcHandle.from_buffer_copy(given)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return pointer.value

    def _round_up(self, length):
        properties = _Properties(_PINNED, _AS_FILE, _Location(_ON_DEVICE, self.number))
        step, smallest = ctypes.c_size_t(), ctypes.c_int(0)
        self._call("cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(properties), smallest)
        return max(1, -(-length // step.value)) * step.value

    def _map(self, handle, size, access):
        pointer = ctypes.c_uint64()
        self._call("cuMemAddressReserve", ctypes.byref(pointer), size, ctypes.c_size_t(0), _nothing(), _nothing())
        mapped = False
        try:
            self._call("cuMemMap", pointer, size, ctypes.c_size_t(0), handle, _nothing())
            mapped = True
            granted = _Access(_Location(_ON_DEVICE, self.number), access)
            self._call("cuMemSetAccess", pointer, size, ctypes.byref(granted), ctypes.c_size_t(1))
        except CudaError:
            if mapped:
                self._call("cuMemUnmap", pointer, size)
            self._call("cuMemAddressFree", pointer, size)
            raise
        return pointer

    def _copy(self, pointer, address, length):
        if length:
            self._call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(address), ctypes.c_size_t(length))
            self._call("cuCtxSynchronize")

    def _call(self, name, *arguments):
        try:
            function = getattr(self._driver, name)
        except AttributeError:
            raise CudaError(f"the driver has no {name}") from None
        status = function(*arguments)
        if status:
            text = ctypes.c_char_p()
            known = self._driver.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text)) == 0 and text.value
            raise CudaError(f"{name}: {text.value.decode() if known else status}")


def _nothing():
    """No flags, and no address in particular."""
    return ctypes.c_uint64(0)
