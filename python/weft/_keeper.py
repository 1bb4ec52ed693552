"""The keeper: a small process that holds weights on a GPU, so that no worker is the one that must not die.

The first worker to need weights loads them and starts a keeper, which copies them to the GPU and then hands them to
every worker that asks. It runs nothing of the model's. Each worker stays connected while it lives, and the keeper ends
with the last of them, however that ended. Where memory can be a file it has no CUDA context meanwhile, and when it is
killed nobody loses anything: the next worker loads the weights again.

It belongs to no worker's process group and to no worker's share of the GPU: it outlives the worker that started it, and
what it holds is charged to nobody.
"""

import contextlib
import ctypes
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import time

from ._cuda import CudaError, Gpu
from ._files import Folder, TookTooLong, Unshared

#: How long a keeper waits for its first worker, which is about to connect.
_FIRST_S = 30
#: How long it waits to remove its files.
_LAST_S = 5
_MESSAGE_BYTES_MAX = 64 * 1024
#: An isolated Python, as workers are, finds this package where it is told.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_START = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('weft._keeper', run_name='__main__', alter_sys=True)"
)


def start(folder, key, weights, image, gpu, ways):
    """Starts a keeper of what an image holds, and gives its process. `weights` is the locked file with the image's
    header."""
    with contextlib.ExitStack() as open_files:
        body = os.memfd_create("weft-weights")
        open_files.callback(os.close, body)
        image.write(body)
        listening = open_files.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        folder.remove(f"{key}.socket")
        listening.bind(folder.address(f"{key}.socket"))
        os.chmod(folder.address(f"{key}.socket"), 0o600)
        listening.listen(128)
        told = {
            "listening": listening.fileno(), "weights": weights, "body": body, "folder": folder.path, "key": key,
            "body_at": image.body_at, "body_bytes": image.body_bytes, "gpu": gpu.number, "ways": ways,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-I", "-c", _START, _PACKAGE, json.dumps(told)],
            pass_fds=(listening.fileno(), weights, body),
            # The worker's output ends with the worker, and so does its process group.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
        )


def ask(folder, key, gpu, length, patience_s):
    """Asks a keeper for its memory, and gives it with the connection that must stay open for as long as it is used.
    None when the keeper is gone."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(patience_s)
        connection.connect(folder.address(f"{key}.socket"))
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            raise Unshared(f"their keeper belongs to user {user}")
        message, files, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES_MAX, 1)
        if not message:
            raise ConnectionResetError
        said = json.loads(message)
        if "error" in said:
            raise Unshared(said["error"])
        try:
            given = files[0] if files else bytes.fromhex(said["handle"])
            memory = gpu.open(said["way"], given, length)
        finally:
            for file in files:
                os.close(file)
    except socket.timeout:
        connection.close()
        raise Unshared("their keeper does not answer") from None
    except (FileNotFoundError, ConnectionError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    memory.keeper = said["keeper"]
    return memory, connection


def main():
    """Copies weights to the GPU and hands them out until nobody has them any more."""
    told = json.loads(sys.argv[1])
    folder = Folder(told["folder"])
    listening = socket.socket(fileno=told["listening"])
    message, files = _upload(told)
    _serve(listening, message, files)
    # Who comes now is not to wait.
    listening.close()
    _leave(folder, told["key"], told["weights"])


def _upload(told):
    """The message for workers, and the file that goes with it where there is one."""
    memory = mmap.mmap(told["body"], 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + told["body_at"]
    why = "there is no way to share memory of this GPU"
    try:
        gpu = Gpu(told["gpu"])
        for way in [each for each in gpu.ways() if each in told["ways"]]:
            try:
                given = gpu.make(way, address, told["body_bytes"])
            except CudaError as error:
                why = str(error)
                continue
            # What was copied is not needed on the host any more; the mapping is this process's last hold of it.
            os.ftruncate(told["body"], 0)
            os.close(told["body"])
            said = {"way": way, "keeper": os.getpid()}
            if way == "file":
                return json.dumps(said).encode(), [given]
            return json.dumps({**said, "handle": given.hex()}).encode(), []
    except CudaError as error:
        why = str(error)
    return json.dumps({"error": why}).encode(), []


def _serve(listening, message, files):
    """Answers workers until the last has gone."""
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    connected = {}
    patience_ms = _FIRST_S * 1000
    while True:
        events = poll.poll(patience_ms)
        for number, _ in events:
            if number == listening.fileno():
                connection, _ = listening.accept()
                _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if user != os.geteuid():
                    connection.close()
                    continue
                with contextlib.suppress(ConnectionError):
                    socket.send_fds(connection, [message], files)
                connected[connection.fileno()] = connection
                poll.register(connection, select.POLLIN)
                patience_ms = None
            else:
                # Workers say nothing: this one has ended.
                poll.unregister(number)
                connected.pop(number).close()
        if not connected and (patience_ms is None or not events):
            return


def _leave(folder, key, weights):
    """Removes the files, unless somebody is at them for long, who will find that nobody holds them."""
    with contextlib.suppress(TookTooLong, Unshared, OSError):
        with folder.locked(key, time.monotonic() + _LAST_S):
            if os.path.samestat(os.stat(f"{key}.weights", dir_fd=folder.descriptor), os.fstat(weights)):
                folder.discard(key)
                folder.remove(f"{key}.lock")


def _environment():
    environment = dict(os.environ)
    # The library that holds a worker to its share would hold the keeper to the share of the worker that started it.
    preloaded = environment.pop("LD_PRELOAD", "").replace(":", " ").split()
    others = [path for path in preloaded if os.path.basename(path) != "libweft.so"]
    if others:
        environment["LD_PRELOAD"] = ":".join(others)
    return environment


if __name__ == "__main__":
    main()
