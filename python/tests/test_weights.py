"""Shared weights, between real processes.

    PYTHONPATH=python python -m unittest discover python/tests
"""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import weft
from weft import _format, _weights

try:
    import torch
except ImportError:
    torch = None
    print("SKIPPED: shared weights of PyTorch: PyTorch is not installed", file=sys.stderr)

HERE = os.path.dirname(os.path.abspath(__file__))
MEGABYTE = 1 << 20


class Member:
    """A process that shares weights (`member.py`)."""

    def __init__(self, program="member.py", variables=(), **told):
        command = [sys.executable, "-B", os.path.join(HERE, program), json.dumps(told)]
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(HERE), **dict(variables)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True)

    def line(self):
        return self.process.stdout.readline().strip()

    def ready(self):
        """What it says when it has its weights."""
        line = self.line()
        while line == "loading":
            line = self.line()
        return json.loads(line)

    def memory(self):
        self.process.stdin.write("memory\n")
        self.process.stdin.flush()
        return json.loads(self.line())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        return self.end()

    def end(self):
        """Lets it end, and gives what it said on its standard error."""
        return self.process.communicate()[1]


class FolderTest(unittest.TestCase):
    """Processes with one folder."""

    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(self.remove, folder)
        self.folder = os.path.join(folder, "weights")
        self.members = []
        self.addCleanup(self.end_all)

    def remove(self, folder):
        """A keeper ends some time after the last member and may write until then."""
        until = time.monotonic() + 20
        while os.path.exists(folder):
            shutil.rmtree(folder, ignore_errors=time.monotonic() < until)
            time.sleep(0.01)

    def end_all(self):
        for member in self.members:
            if member.process.stdout.closed:
                continue
            member.kill()
        self.members.clear()

    def member(self, **told):
        self.members.append(Member(**{"folder": self.folder, **told}))
        return self.members[-1]

    def files(self, ending):
        return [os.path.join(self.folder, name) for name in os.listdir(self.folder) if name.endswith(ending)]


class SharingTest(FolderTest):
    """In the host's memory."""

    def test_eight_workers_have_one_copy(self):
        first = self.member(megabytes=64)
        self.assertEqual(first.ready()["loaded"], 1)
        others = [self.member(megabytes=64) for _ in range(7)]
        said = [each.ready() for each in others]
        self.assertEqual([each["loaded"] for each in said], [0] * 7)
        # All of them have touched every page.
        memory = [each.memory() for each in [first, *others]]
        total = sum(each["pss"] for each in memory)
        self.assertGreater(total, 60 * MEGABYTE)
        self.assertLess(total, 68 * MEGABYTE)
        self.assertEqual(len({each["sum"] for each in memory}), 1)
        with open(f"/proc/{first.process.pid}/maps") as maps:
            self.assertNotIn("/dev/shm", maps.read())
        self.assertEqual(stat.S_IMODE(os.stat(self.folder).st_mode), 0o700)
        (path,) = self.files(".weights")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o400)

    def test_one_loads_when_many_start_at_once(self):
        members = [self.member(load_s=0.5) for _ in range(4)]
        said = [each.ready() for each in members]
        self.assertEqual(sorted(each["loaded"] for each in said), [0, 0, 0, 1])
        self.assertEqual(len({each["sum"] for each in said}), 1)

    def test_others_go_on_when_the_first_is_killed(self):
        first = self.member()
        total = first.ready()["sum"]
        second = self.member()
        self.assertEqual(second.ready()["loaded"], 0)
        first.kill()
        self.assertEqual(second.memory()["sum"], total)
        third = self.member()
        self.assertEqual(third.ready()["loaded"], 0)
        second.kill()
        third.kill()
        # Nobody is left who could vouch for the file.
        self.assertEqual(self.member().ready()["loaded"], 1)
        self.assertEqual(len(self.files(".weights")), 1)

    def test_another_loads_when_the_loader_is_killed(self):
        first = self.member(load_s=60)
        self.assertEqual(first.line(), "loading")
        second = self.member()
        first.kill()
        self.assertEqual(second.ready()["loaded"], 1)
        self.assertEqual(self.files(".new"), [])

    def test_a_half_written_file_is_not_taken(self):
        os.mkdir(self.folder, 0o700)
        self.assertEqual(self.member().ready()["loaded"], 1)
        (path,) = self.files(".weights")
        self.end_all()
        os.rename(path, path.replace(".weights", ".new"))
        self.assertEqual(self.member().ready()["loaded"], 1)
        self.assertEqual(self.files(".new"), [])

    def test_nobody_waits_forever(self):
        first = self.member(load_s=60)
        self.assertEqual(first.line(), "loading")
        second = self.member(patience_ms=200)
        self.assertIn("another worker has been loading the weights for too long", second.end())
        self.assertNotEqual(second.process.returncode, 0)

    def test_whoever_differs_does_not_share(self):
        self.assertEqual(self.member().ready()["loaded"], 1)
        for other in ({"version": 2}, {"model": "model.2"}, {"env": {"WHICH": "b"}}):
            self.assertEqual(self.member(**other).ready()["loaded"], 1, other)
        self.assertEqual(self.member().ready()["loaded"], 0)

    def test_a_damaged_file_is_loaded_again(self):
        def cut(path):
            os.truncate(path, os.path.getsize(path) - 1)

        def flip(path):
            with open(path, "r+b") as file:
                file.seek(60)
                byte = file.read(1)[0]
                file.seek(60)
                file.write(bytes([byte ^ 1]))

        def replace(path):
            (other,) = [each for each in self.files(".weights") if each != path]
            with open(other, "rb") as source, open(path, "r+b") as target:
                target.write(source.read())

        for damage, reason in ((cut, "bytes, not"), (flip, "not as it was written"), (replace, "it is of model-2")):
            with self.subTest(damage.__name__):
                self.assertEqual(self.member().ready()["loaded"], 1)
                (path,) = self.files(".weights")
                if damage is replace:
                    self.assertEqual(self.member(version=2).ready()["loaded"], 1)
                os.chmod(path, 0o600)
                damage(path)
                second = self.member()
                self.assertEqual(second.ready()["loaded"], 1)
                # And that is what the next one gets.
                self.assertEqual(self.member().ready()["loaded"], 0)
                self.assertIn(reason, second.end())
                self.end_all()

    def refused(self, reason):
        member = self.member()
        said = member.ready()
        self.assertEqual(said["loaded"], 1)
        self.assertGreater(said["sum"], 0)
        self.assertRegex(member.end(), f"not shared: .*{reason}")

    def test_what_others_could_read_or_write_is_refused(self):
        os.mkdir(self.folder, 0o700)
        os.chmod(self.folder, 0o750)
        self.refused("open to other users")
        os.chmod(self.folder, 0o700)
        self.assertEqual(self.member().ready()["loaded"], 1)
        (path,) = self.files(".weights")
        os.chmod(path, 0o644)
        self.refused("open to other users")

    def test_links_are_not_followed(self):
        elsewhere = self.folder + ".elsewhere"
        os.mkdir(elsewhere, 0o700)
        os.symlink(elsewhere, self.folder)
        self.refused("Not a directory|symbolic")
        os.unlink(self.folder)
        self.assertEqual(self.member().ready()["loaded"], 1)
        (path,) = self.files(".weights")
        os.rename(path, elsewhere + "/file")
        os.symlink(elsewhere + "/file", path)
        self.refused("is a symbolic link")

    @unittest.skipUnless(os.geteuid() == 0, "SKIPPED: only root can make files of other users")
    def test_files_of_other_users_are_refused(self):
        os.mkdir(self.folder, 0o700)
        os.chown(self.folder, 12345, -1)
        self.refused("belongs to user 12345")
        os.chown(self.folder, 0, -1)
        self.assertEqual(self.member().ready()["loaded"], 1)
        (path,) = self.files(".weights")
        os.chown(path, 12345, -1)
        self.refused("belongs to user 12345")

    def test_a_full_disk_is_no_reason_to_fail(self):
        os.mkdir(self.folder, 0o700)
        limited = [sys.executable, "-c", "import os, resource, signal, sys; "
                   "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
                   "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); "
                   "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"]  # fmt: skip
        told = json.dumps({"folder": self.folder})
        command = [*limited, "-B", os.path.join(HERE, "member.py"), told]
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(HERE)}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("not shared: [Errno 27] File too large", ran.stderr)
        self.assertEqual(self.files(".new") + self.files(".weights"), [])


class KeeperTest(FolderTest):
    """On a stand-in for a GPU."""

    @classmethod
    def setUpClass(cls):
        if shutil.which("cc") is None:
            raise unittest.SkipTest("SKIPPED: there is no C compiler for the stand-in GPU")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        library = os.path.join(folder.name, "libcuda.so.1")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "cuda.c")], check=True)
        cls.variables = {"LD_LIBRARY_PATH": folder.name}

    def gpu_member(self, **variables):
        return self.member(program="gpu_member.py", variables={**self.variables, **variables})

    def eventually(self, holds):
        until = time.monotonic() + 20
        while not holds():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def check(self, way, read_only, **variables):
        first = self.gpu_member(**variables)
        said = first.ready()
        self.assertEqual((said["loaded"], said["way"], said["read_only"]), (1, way, read_only))
        self.assertEqual(said["part"], [0, 1, 2])
        second = self.gpu_member(**variables)
        self.assertEqual(second.ready(), {**said, "loaded": 0})
        # The worker that loaded them is nobody in particular.
        first.kill()
        self.assertEqual(second.memory()["sum"], said["sum"])
        third = self.gpu_member(**variables)
        self.assertEqual(third.ready(), {**said, "loaded": 0})
        second.kill()
        third.end()
        self.eventually(lambda: not alive(said["keeper"]))
        self.assertEqual(os.listdir(self.folder), [])

    def test_memory_that_is_a_file(self):
        self.check("file", True)

    def test_memory_that_cannot_be_read_only(self):
        self.check("file", False, WITHOUT_READ="1")

    def test_memory_that_is_a_handle(self):
        self.check("ipc", False, WITHOUT_FILES="1")

    def test_workers_go_on_without_a_keeper(self):
        first = self.gpu_member()
        said = first.ready()
        os.kill(said["keeper"], signal.SIGKILL)
        self.eventually(lambda: not alive(said["keeper"]))
        self.assertEqual(first.memory()["sum"], said["sum"])
        second = self.gpu_member()
        again = second.ready()
        self.assertEqual((again["loaded"], again["sum"]), (1, said["sum"]))
        self.assertNotEqual(again["keeper"], said["keeper"])
        self.assertEqual(self.gpu_member().ready()["keeper"], again["keeper"])

    def test_one_keeper_when_many_start_at_once(self):
        members = [self.gpu_member() for _ in range(4)]
        said = [each.ready() for each in members]
        self.assertEqual(sorted(each["loaded"] for each in said), [0, 0, 0, 1])
        self.assertEqual(len({each["keeper"] for each in said}), 1)

    def test_a_gpu_that_refuses_is_no_reason_to_fail(self):
        member = self.gpu_member(OUT_OF_MEMORY="1")
        said = member.ready()
        self.assertEqual((said["loaded"], said["part"]), (1, [0, 1, 2]))
        self.assertIn("not shared: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY", member.end())
        self.eventually(lambda: os.listdir(self.folder) == [])


def alive(process):
    """Whether a process is there and not only waiting to be buried."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return ") Z " not in file.read()
    except FileNotFoundError:
        return False


class CallTest(unittest.TestCase):
    """What one process sees."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "model.py")
        with open(self.file, "w") as file:
            file.write("class M: pass")
        self.place = _weights.Place(os.path.join(folder.name, "weights"), "m", 1, [], 1000, self.file)
        self.enter(self.place)
        self.addCleanup(self.enter, None)

    def enter(self, place):
        while _weights._held:
            os.close(_weights._held.pop())
        _weights._names.clear()
        _weights.enter(place)

    def twice(self, value):
        """The value as its loader has it, and as another that does not load."""
        loaded = weft.shared(lambda: value)
        _weights._names.clear()
        return loaded, weft.shared(lambda: self.fail("it is shared"))

    def test_an_exception_of_load_is_the_models_own(self):
        def load():
            raise FileNotFoundError("weights.npz")

        with self.assertRaisesRegex(FileNotFoundError, "weights.npz"):
            weft.shared(load)

    def test_a_name_is_shared_once(self):
        weft.shared(lambda: np.zeros(1))
        with self.assertRaisesRegex(ValueError, "something else"):
            weft.shared(lambda: np.ones(1))
        self.assertEqual(weft.shared(lambda: np.ones(1), name="more")[0], 1)

    def test_files_that_change_are_loaded_again(self):
        other = self.file + ".npz"
        for text in ("a", "bc"):
            with open(other, "w") as file:
                file.write(text)
            _weights._names.clear()
            self.assertEqual(weft.shared(lambda: np.array([text]), files=[other])[0], text)
        key = _weights.make_key(self.place, "weights", "cpu", [])
        with open(self.file, "a") as file:
            file.write("\n")
        self.assertNotEqual(_weights.make_key(self.place, "weights", "cpu", []), key)
        self.assertNotEqual(_weights.make_key(self.place, "weights", "gpu", []), key)

    def test_without_a_node_it_is_the_same_but_for_sharing(self):
        self.enter(None)
        array = weft.shared(lambda: {"a": np.zeros(2)})["a"]
        with self.assertRaisesRegex(ValueError, "read-only"):
            array[0] = 1
        self.assertFalse(os.path.exists(self.place.folder))

    def test_a_deployment_can_forbid_it(self):
        os.environ["WEFT_SHARE_WEIGHTS"] = "0"
        self.addCleanup(os.environ.pop, "WEFT_SHARE_WEIGHTS")
        self.enter(self.place)
        weft.shared(lambda: np.zeros(1))
        self.assertFalse(os.path.exists(self.place.folder))

    def test_arrays_come_back_as_they_were(self):
        base = np.arange(24, dtype=np.float32).reshape(4, 6)
        given = {
            "plain": base,
            "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
            "backwards": np.arange(10)[::-2],
            "window": np.arange(100, dtype=np.uint8).reshape(10, 10)[2:5, 3:9:2],
            "repeated": np.broadcast_to(np.float64(3), (2, 2)),
            "zero dimensions": np.array(7, dtype=np.float16),
            "scalar": np.float32(8),
            "empty": np.empty((0, 3), dtype=np.int8),
            "big endian": np.arange(3, dtype=">i4"),
            "complex": np.array([1 + 2j]),
            "bool": np.array([True, False]),
            "text": np.array(["ä", "bc"]),
            "bytes": np.array([b"a", b"bcd"]),
            "time": np.array(["2024-01-01"], dtype="M8[D]"),
        }
        for shared in self.twice(given):
            self.assertEqual(list(shared), list(given))
            for name, was in given.items():
                now = shared[name]
                self.assertEqual((now.dtype, now.shape, now.strides), (was.dtype, was.shape, was.strides), name)
                np.testing.assert_array_equal(now, was, name)
                self.assertFalse(now.flags.writeable)
                with self.assertRaises(ValueError):
                    now.flags.writeable = True

    def test_what_overlaps_overlaps_again(self):
        base = np.arange(1000, dtype=np.int64)
        given = {
            "head": base[:600],
            "tail": base[400:],
            "same": base[:600],
            "other": base.copy(),
            "bits": base.view("u1"),
        }
        for shared in self.twice(given):
            address = {name: array.__array_interface__["data"][0] for name, array in shared.items()}
            self.assertEqual(address["tail"] - address["head"], 400 * 8)
            self.assertEqual(address["same"], address["head"])
            self.assertEqual(address["bits"], address["head"])
            self.assertTrue(np.shares_memory(shared["head"], shared["tail"]))
            self.assertFalse(np.shares_memory(shared["head"], shared["other"]))
            np.testing.assert_array_equal(shared["tail"], base[400:])
        size = sum(os.path.getsize(os.path.join(self.place.folder, name)) for name in os.listdir(self.place.folder))
        self.assertLess(size, 2 * base.nbytes + 16384)

    def test_one_array_alone(self):
        for shared in self.twice(np.arange(3)):
            np.testing.assert_array_equal(shared, np.arange(3))

    def test_what_is_not_plain_memory_is_refused(self):
        for value in (
            np.array([{}]),
            np.zeros(1, dtype=[("a", "i4")]),
            {"a": [1]},
            {"a": {"b": np.zeros(1)}},
            {1: np.zeros(1)},
        ):
            _weights._names.clear()
            with self.assertRaises(TypeError):
                weft.shared(lambda: value)

    def test_headers_that_lie_are_refused(self):
        def check(reason, **change):
            said = {"key": "k", "single": False, "bytes": 16, "tensors": [["a", "numpy", "<f8", [2], [8], 0]], **change}
            file = os.memfd_create("test")
            self.addCleanup(os.close, file)
            image = _format.Image("k", {"a": np.zeros(2)})
            text = json.dumps(said).encode()
            digest = _format.hashlib.sha256(text).digest()
            head = _format._START.pack(_format.MAGIC, len(text), digest) + text
            os.pwrite(file, head.ljust(image.body_at, b"\0") + bytes(16), 0)
            with self.assertRaisesRegex(_format.Damaged, reason):
                _format.read(file, "k")

        tensor = lambda *fields: {"tensors": [list(fields)]}
        check("makes no sense", **tensor("a", "numpy", "<f8", [3], [8], 0))
        check("makes no sense", **tensor("a", "numpy", "<f8", [2], [8], 8))
        check("makes no sense", **tensor("a", "numpy", "<f8", [2], [-8], 0))
        check("makes no sense", **tensor("a", "numpy", "<f8", [-1], [8], 0))
        check("makes no sense", **tensor("a", "numpy", "<f8", [2.0], [8], 0))
        check("makes no sense", **tensor("a", "numpy", "<f8", [2, 1], [8], 0))
        check("makes no sense", **tensor("a", "numpy", "|O", [2], [8], 0))
        check("makes no sense", **tensor("a", "os", "system", [2], [8], 0))
        check("makes no sense", **tensor("a"))
        check("makes no sense", bytes="16")
        check("bytes, not", bytes=17)
        check("it is of x", key="x")

    def test_a_stale_file_is_removed_with_its_lock_held_by_nobody(self):
        weft.shared(lambda: np.zeros(1))
        (name,) = [name for name in os.listdir(self.place.folder) if name.endswith(".weights")]
        file = os.open(os.path.join(self.place.folder, name), os.O_RDONLY)
        self.addCleanup(os.close, file)
        with self.assertRaises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.enter(self.place)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@unittest.skipIf(torch is None, "SKIPPED: PyTorch is not installed")
class TorchTest(CallTest):
    def test_tensors_come_back_as_they_were(self):
        base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
        tied = torch.randn(100, 100)
        given = {
            "plain": base,
            "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
            "float8": torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
            "zero dimensions": torch.tensor(5, dtype=torch.int64),
            "transposed": base.clone().T,
            "window": torch.arange(100, dtype=torch.uint8).reshape(10, 10)[2:5, 3:9:2],
            "expanded": torch.ones(1).expand(3, 2),
            "empty": torch.empty(0, 4),
            "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "parameter": torch.nn.Parameter(torch.ones(3)),
            "conjugate": torch.tensor([1 + 2j]).conj(),
            "one": tied,
            "other": tied,
            "part": tied[10:20],
            "numpy": np.arange(3),
        }
        for shared in self.twice(given):
            for name, was in given.items():
                now = shared[name]
                self.assertEqual(now.dtype, was.dtype)
                if name == "numpy":
                    continue
                self.assertEqual((tuple(now.shape), now.stride()), (tuple(was.shape), was.stride()), name)
                self.assertTrue(
                    torch.equal(now.float() if "8" in name else now, was.detach().float() if "8" in name else was), name
                )
                self.assertFalse(now.requires_grad)
            self.assertEqual(shared["one"].data_ptr(), shared["other"].data_ptr())
            self.assertEqual(shared["part"].data_ptr() - shared["one"].data_ptr(), 10 * 100 * 4)

    def test_what_a_worker_writes_is_its_own(self):
        first, second = self.twice({"a": torch.zeros(4)})
        first["a"].fill_(1)
        self.assertEqual(second["a"].sum(), 0)

    def test_tensors_without_memory_are_refused(self):
        for value in (torch.empty(2, device="meta"), torch.eye(2).to_sparse()):
            _weights._names.clear()
            with self.assertRaises(TypeError):
                weft.shared(lambda: {"a": value})

    def test_a_module_is_built_without_numbers(self):
        made_on = []

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one = torch.nn.Linear(8, 8, bias=False)
                self.two = torch.nn.Linear(8, 8, bias=False)
                self.two.weight = self.one.weight
                self.norm = torch.nn.BatchNorm1d(8)
                self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)
                made_on.append(self.one.weight.device.type)

            def forward(self, x):
                return self.norm(self.two(self.one(x))) * self.scale

        real = Net().eval()
        state = real.state_dict()
        made_on.clear()
        first = weft.shared_module(Net, lambda: state)
        _weights._names.clear()
        made_on.clear()
        second = weft.shared_module(Net, lambda: self.fail("it is shared"))
        self.assertEqual(made_on, ["meta"])
        x = torch.randn(3, 8)
        for module in (first, second):
            self.assertTrue(torch.equal(module(x), real(x)))
            self.assertIs(module.one.weight, module.two.weight)
            self.assertFalse(module.training)
            self.assertFalse(any(each.requires_grad for each in module.parameters()))
        self.assertEqual(second.state_dict().keys(), state.keys())

    def test_a_module_whose_numbers_are_in_no_buffer(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(2, 2)
                self.loose = torch.tensor([3.0])

        class Curious(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(2, 2)
                self.count = torch.tensor(3).item()

        for index, build in enumerate((Net, Curious)):
            state = build().state_dict()
            for _ in range(2):
                _weights._names.clear()
                module = weft.shared_module(build, lambda: state, name=f"n{index}")
                self.assertTrue(torch.equal(module.linear.weight, state["linear.weight"]))
        self.assertEqual(module.count, 3)


def load_tests(loader, tests, pattern):
    # TorchTest has CallTest's set-up, and need not run its tests again.
    suite = unittest.TestSuite()
    for case in (SharingTest, KeeperTest, CallTest, TorchTest):
        names = [name for name in loader.getTestCaseNames(case) if name in vars(case)]
        suite.addTests(case(name) for name in names)
    return suite


if __name__ == "__main__":
    unittest.main()
