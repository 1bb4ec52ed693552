"""Weights that the workers of one model have together: one copy on a machine's memory, or one on each GPU.

The first worker that asks loads them, the others wait for it and then map what it made. In the host's memory that is a
file, which the kernel keeps for as long as anybody has it mapped; on a GPU a keeper has it (``_keeper.py``). Who may
share is said by a key: the model's name and version, what its files hold, its environment, and the device.

Invariants:
1. What is shared never changes, and no worker can change what another one sees.
2. Whatever keeps workers from sharing makes them load for themselves, with a line in their log. It fails no worker.
3. Nobody loads what another worker is loading, which would take the memory that sharing saves. Who has waited for too
   long fails, and its node starts it again; it kills a worker that never ends loading.

What they do not cover: on a GPU whose driver cannot map memory for reading only, a worker that writes to its weights
writes to those of all.
"""

import hashlib
import json
import os
import re
import sys
import time
from typing import NamedTuple

from . import _cuda, _format
from ._files import LOOK_S, Folder, Unshared

#: What must stay open until this process ends: locked files, and connections to keepers.
_held = []
#: Names that were shared already.
_names = set()
#: Where weights are shared and for which model; None where no node said so.
_place = None
#: Ways to share a GPU's memory that may be used.
ways = _cuda.WAYS


class _LoadFailed(Exception):
    """An exception of the model's own `load`, which is its cause. It is not about sharing."""


class Place(NamedTuple):
    """What a node tells its workers (``crates/node/src/protocol.rs``), and the model's file. ``env`` are the names of
    variables that the deployment sets."""

    folder: str
    model: str
    version: int
    env: list
    patience_ms: int
    file: str


def enter(place):
    """Says where weights are shared from here on. A deployment can forbid it with an environment variable."""
    global _place
    _place = None if os.environ.get("WEFT_SHARE_WEIGHTS") == "0" else place


def shared(load, *, name="weights", device="cpu", files=()):
    """Weights that all workers of this model on this machine, or on this GPU, have together.

    ``load`` is called by the first worker and gives an array, or a dictionary of arrays by name, as ``state_dict``
    does; of numpy, or tensors of PyTorch. The others get the same without loading it: the same types, shapes and
    strides, and what was tied is tied. Arrays of numpy are read-only. PyTorch has no read-only tensors: what a worker
    writes to one is its own where ``device`` is the CPU, and not allowed where it is a GPU.

    ``device`` may be a GPU, ``"cuda"`` or ``"cuda:1"``, for tensors of PyTorch.

    Workers share while the model's file, the modules it has imported from its folder and its environment are the same.
    ``files`` names what else ``load`` reads, files or folders: when they change, new workers load again. A second set
    of weights in one model needs a ``name``.
    """
    if name in _names:
        raise ValueError(f"weights called `{name}` are shared already; call these something else: name=...")
    _names.add(name)
    loaded = []

    def load_once():
        if not loaded:
            try:
                loaded.append(load())
            except Exception as error:
                raise _LoadFailed from error
        return loaded[0]

    try:
        if _place is not None:
            try:
                value = _share(_place, load_once, name, str(device), files)
                _free(loaded, str(device))
                return value
            except (Unshared, OSError) as why:
                print(f"weft: the weights `{name}` are not shared: {why}", file=sys.stderr, flush=True)
        return _format.own(load_once(), device)
    except _LoadFailed as failed:
        error = failed.__cause__
    raise error


def shared_module(build, load, *, name="weights", device="cpu", files=()):
    """A module of PyTorch's whose weights all workers of this model have together, for inference.

    ``build`` makes the module and ``load`` its ``state_dict``. Weights that ``build`` makes are never filled with
    numbers: it runs on PyTorch's device ``meta``. The types of ``load``'s tensors count. The rest is as for
    :func:`shared`.
    """
    import torch

    def build_empty():
        try:
            with torch.device("meta"):
                return build()
        except (NotImplementedError, RuntimeError):
            # It looks at the numbers in its tensors; there they have none.
            return build()

    def load_all():
        module = build_empty()
        module.load_state_dict(load(), assign=True)
        tensors = _tensors(module)
        # What is in no state_dict is computed by `build`.
        if any(tensor.is_meta for tensor in tensors.values()):
            computed = _tensors(build())
            tensors = {name: computed[name] if tensor.is_meta else tensor for name, tensor in tensors.items()}
        return tensors

    module = build_empty()
    if _has_loose_tensors(module):
        # A tensor that is neither parameter nor buffer has its numbers from `build` alone.
        module = build().to(device)
    _fill(module, shared(load_all, name=name, device=device, files=files))
    return module.eval()


def _tensors(module):
    """All parameters and buffers by name, tied ones under each of theirs."""
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors.update(module.named_buffers(remove_duplicate=False))
    return tensors


def _fill(module, tensors):
    """Puts tensors in the place of a module's own. What was one object stays one."""
    import torch

    replaced = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for slots in (part._parameters, part._buffers):
            for name, old in slots.items():
                if old is None:
                    continue
                if id(old) not in replaced:
                    new = tensors[f"{prefix}.{name}" if prefix else name]
                    if slots is part._parameters:
                        new = torch.nn.Parameter(new, requires_grad=False)
                    # The old one is kept, lest its number be given to another.
                    replaced[id(old)] = (old, new)
                    replaced[id(new)] = (new, new)
                slots[name] = replaced[id(old)][1]


def _has_loose_tensors(module):
    import torch

    values = (each for part in module.modules() for each in vars(part).values())
    return any(isinstance(each, torch.Tensor) and each.is_meta for each in values)


def _share(place, load, name, device, files):
    patience_s = place.patience_ms / 1000
    until = time.monotonic() + patience_s
    gpu = None if device.startswith("cpu") else _find_gpu(device)
    key = make_key(place, name, gpu.identity() if gpu else "cpu", files)
    folder = Folder(place.folder)
    try:
        while True:
            with folder.locked(key, until):
                found = _share_on_gpu(folder, key, load, gpu, patience_s) if gpu else _share_on_host(folder, key, load)
            if found is not None:
                return found
            # There is a keeper that is about to end. When it has, its files are nobody's.
            if time.monotonic() >= until:
                raise Unshared("their keeper is going and does not go")
            time.sleep(LOOK_S)
    finally:
        folder.close()


def _share_on_host(folder, key, load):
    file = folder.find(key)
    header = _read(folder, key, file, with_body=True)
    if header is None:
        image = _format.Image(key, load())
        with folder.made(key) as file:
            image.write(file)
        header = _format.read(file, key)
    _held.append(file)
    return _format.mapped(file, header)


def _share_on_gpu(folder, key, load, gpu, patience_s):
    from . import _keeper

    file = folder.find(key)
    header = _read(folder, key, file, with_body=False)
    keeper = None
    if header is None:
        image = _format.Image(key, load(), "torch")
        with folder.made(key) as file:
            image.write_head(file)
        header = _format.read(file, key, with_body=False)
        keeper = _keeper.start(folder, key, file, image, gpu, ways)
        # Whoever drops it is warned that it still runs.
        _held.append(keeper)
        del image
    try:
        answer = _keeper.ask(folder, key, gpu, header.body_bytes, patience_s)
    finally:
        # From here on the keeper alone holds it.
        os.close(file)
    if answer is None:
        if keeper is not None:
            raise Unshared("their keeper ended at once")
        return None
    memory, connection = answer
    _held.append(connection)
    return _format.on_gpu(memory, gpu.number, header)


def _free(loaded, device):
    """Lets go of what was loaded; what lay on a GPU PyTorch would keep for later."""
    loaded.clear()
    if not device.startswith("cpu"):
        import torch

        torch.cuda.empty_cache()


def _read(folder, key, file, with_body):
    """The header of weights that were found; None where there are none, or they are not what they should be."""
    if file is None:
        return None
    try:
        return _format.read(file, key, with_body)
    except _format.Damaged as why:
        os.close(file)
        print(f"weft: {folder.path}/{key}.weights is loaded again: {why}", file=sys.stderr, flush=True)
        return None


def _find_gpu(device):
    import torch

    device = torch.device(device)
    if device.type != "cuda":
        raise Unshared(f"{device} is neither the CPU nor a GPU of CUDA's")
    torch.cuda.init()
    return _cuda.Gpu(torch.cuda.current_device() if device.index is None else device.index)


def make_key(place, name, device, files):
    """What workers must have in common to share weights, as the beginning of file names."""
    parts = [_format.MAGIC.decode(), place.model, place.version, name, device]
    parts.append([(variable, os.environ.get(variable)) for variable in sorted(place.env)])
    parts.append([(os.path.relpath(path, os.path.dirname(place.file)), _digest(path)) for path in _sources(place.file)])
    parts.append([_state(path) for path in files])
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    said = re.sub("[^A-Za-z0-9_.-]", "_", f"{place.model}-{place.version}-{name}")[:80]
    return f"{said}-{digest[:40]}"


def _sources(model):
    """The model's file, and the files of modules that were imported from its folder."""
    folder = os.path.dirname(os.path.abspath(model)) + os.sep
    found = {os.path.abspath(model)}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and path.startswith(folder) and "site-packages" not in path[len(folder) :]:
            found.add(path)
    return sorted(found)


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _state(path):
    """What changes when a file does, or a file in a folder. Reading it all would take as long as loading it."""
    path = os.path.realpath(path)
    if os.path.isdir(path):
        inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [path, [_state(each) for each in sorted(inside)]]
    found = os.stat(path)
    return [path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]
