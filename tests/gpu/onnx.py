"""An ONNX model on a real GPU through `weft up`, alone and under a share: `python3 tests/gpu/onnx.py --weft PATH`.

Shows that a model with `device = "gpu"` is on the GPU in truth: `weft models` says so, the driver counts the worker among
the GPU's programs, what it answers is what the CPU answers, and under a share the daemon counts its memory and holds it
to its cap. Needs an NVIDIA GPU and onnxruntime-gpu with its CUDA and cuDNN libraries: `weft setup --gpu` installs them, or
`--wheel FILE` names a wheel of onnxruntime-gpu for a machine that cannot reach a package index. NVIDIA's libraries are then
taken from wheels beside those of this Python, such as PyTorch's. Says loudly what is missing and ends with status 2; status
1 means that something is not as it should be. Prints a table; `--json FILE` keeps it.
"""

import argparse
import glob
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile

WIDTH, MEMORY_MIB, PATIENCE_S = 1024, 2048, 300


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, value):
    """A field of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name):
    """A float tensor of any number of rows."""
    rows, columns = field(2, b"rows"), field(1, WIDTH)
    shape = field(1, rows) + field(1, columns)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def model(path):
    """y = relu(x w), where w moves every element by one place and doubles it."""
    weights = bytearray(4 * WIDTH * WIDTH)
    for row in range(WIDTH):
        struct.pack_into("<f", weights, 4 * (row * WIDTH + (row + 1) % WIDTH), 2.0)
    initial = field(1, WIDTH) + field(1, WIDTH) + field(2, 1) + field(8, b"w") + field(9, bytes(weights))
    multiply = field(1, b"x") + field(1, b"w") + field(2, b"h") + field(4, b"MatMul")
    relu = field(1, b"h") + field(2, b"y") + field(4, b"Relu")
    graph = field(1, multiply) + field(1, relu) + field(2, b"g") + field(5, initial)
    graph += field(11, tensor(b"x")) + field(12, tensor(b"y"))
    with open(path, "wb") as file:
        file.write(field(1, 8) + field(7, graph) + field(8, field(2, 16)))


def missing(what):
    print(f"\n  **** SKIPPED, NOTHING WAS SHOWN: {what} ****\n", file=sys.stderr)
    sys.exit(2)


def unpack(wheel, folder):
    """ONNX Runtime's library from a wheel, with NVIDIA's libraries where the node looks for them: beside it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("onnxruntime/capi/lib")])
    found = [path for place in sys.path for path in glob.glob(os.path.join(place, "nvidia"))]
    if found:
        os.symlink(found[0], os.path.join(folder, "nvidia"))
    return library_in(folder)


def library_in(folder):
    found = glob.glob(os.path.join(folder, "**", "onnxruntime", "capi", "libonnxruntime.so*"), recursive=True)
    return found[0] if found else None


class Server:
    """A Weft with a daemon of its own."""

    def __init__(self, asked, folder, library, share):
        self.asked, self.folder = asked, folder
        os.makedirs(folder)
        model(os.path.join(folder, "shift.onnx"))
        with open(os.path.join(folder, "weft.toml"), "w") as file:
            file.write(f"[node]\npython = {json.dumps(sys.executable)}\nonnxruntime = {json.dumps(library)}\n")
            file.write('[[model]]\nname = "shift"\nkind = "onnx"\npath = "shift.onnx"\nslo = "1s"\nmax_batch = 8\n')
            file.write(f'device = "gpu"\n{share}\n')
        self.variables = dict(os.environ, WEFT_SOCKET=os.path.join(folder, "node.sock"))
        port = asked.port
        self.http, self.admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 2}"
        words = [asked.weft, "up", "weft.toml"]
        for name, number in (("--http", port), ("--grpc", port + 1), ("--metrics", port + 2)):
            words += [name, f"127.0.0.1:{number}"]
        self.log = open(os.path.join(folder, "log.txt"), "w+")
        self.process = subprocess.Popen(words, cwd=folder, env=self.variables, stdout=self.log, stderr=self.log)

    def weft(self, *words):
        return subprocess.run([self.asked.weft, *words], cwd=self.folder, env=self.variables, capture_output=True, text=True)

    def ready(self):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                return urllib.request.urlopen(self.http + "/v2/health/ready", timeout=5).status == 200
            except OSError:
                time.sleep(0.2)
        return False

    def said(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def infer(self, values):
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, WIDTH], "data": values}]}
        request = urllib.request.Request(self.http + "/v2/models/shift/infer", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))["outputs"][0]["data"]

    def workers(self):
        """Processes of the model's workers."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    variables = file.read().split(b"\0")
            except OSError:
                continue
            if b"WEFT_MODEL=shift" in variables and f"WEFT_SOCKET={self.variables['WEFT_SOCKET']}".encode() in variables:
                found.append(int(path.split("/")[2]))
        return found

    def end(self):
        daemon = json.loads(self.weft("top", "--json").stdout or "{}").get("pid")
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        # Where the server shared the GPU itself, its daemon has ended with it.
        if daemon and os.path.exists(f"/proc/{daemon}"):
            os.kill(daemon, signal.SIGTERM)


def gpu_programs():
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    return {int(pid): used.strip() for pid, used in (line.split(",") for line in lines if "," in line)}


def show(asked, folder, library, name, share, rows):
    """Serves the model and looks at it from all sides."""
    server = Server(asked, os.path.join(folder, name), library, share)
    check = lambda what, held, seen: rows.append({"setting": name, "what": what, "ok": bool(held), "seen": str(seen)})
    try:
        ready = server.ready()
        check("the model is ready", ready, "yes" if ready else server.said()[-1500:])
        if not ready:
            return
        told = json.loads(server.weft("models", "--json", "--server", server.admin).stdout)["models"][0]
        check("weft models says that it is on the GPU", told["device"] == "gpu", f"{told['device']} ({told['provider']})")
        values = [float(number % 7 - 3) for number in range(WIDTH)]
        expected = [max(0.0, 2 * values[number - 1]) for number in range(WIDTH)]
        check("its answers are right", server.infer(values) == expected, f"{WIDTH} numbers")
        workers, programs = server.workers(), gpu_programs()
        # In a container the driver's numbers are those of the host: then any program on the GPU must do.
        held = set(workers) & set(programs) or (programs and not any(os.path.exists(f"/proc/{pid}") for pid in programs))
        check("the driver sees it on the GPU", held, f"workers {workers}, programs {programs}")
        maps = "".join(open(f"/proc/{pid}/maps").read() for pid in workers)
        check("CUDA's provider is loaded", "libonnxruntime_providers_cuda.so" in maps, "/proc/PID/maps")
        check("the library that shares is" + ("" if share else " not") + " in it", ("libweft.so" in maps) == bool(share), "/proc/PID/maps")
        if share:
            status = json.loads(server.weft("top", "--json").stdout)
            tenants = [tenant for gpu in status["gpus"] for tenant in gpu["tenants"] if tenant["name"] == "shift"]
            used = tenants[0].get("memory_bytes", 0) if tenants else 0
            check("the daemon counts its memory, below its cap", 0 < used <= MEMORY_MIB << 20, f"{used / 2**20:.0f} of {MEMORY_MIB} MiB")
    finally:
        server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="target/release/weft")
    parser.add_argument("--wheel", help="a wheel of onnxruntime-gpu")
    parser.add_argument("--state", default=".weft", help="where `weft setup --gpu` was run")
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--json")
    asked = parser.parse_args()
    asked.weft = os.path.abspath(asked.weft)
    if not shutil.which("nvidia-smi") or not subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip():
        missing("THERE IS NO NVIDIA GPU ON THIS MACHINE (nvidia-smi finds none)")
    if not os.path.exists(asked.weft):
        missing(f"{asked.weft} IS NOT THERE; build it, with libweft.so beside it")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.wheel:
            library = unpack(asked.wheel, os.path.join(folder, "packages"))
        else:
            library = library_in(os.path.abspath(os.path.join(asked.state, "environment")))
        if not library:
            missing("ONNX RUNTIME IS NOT THERE; run `weft setup --gpu`, or name a wheel with --wheel")
        if not os.path.exists(os.path.join(os.path.dirname(library), "libonnxruntime_providers_cuda.so")):
            missing(f"{library} IS A BUILD FOR THE CPU; run `weft setup --gpu`, or name a wheel with --wheel")
        print(f"ONNX Runtime: {library}", file=sys.stderr)
        show(asked, folder, library, "alone", "", rows)
        show(asked, folder, library, "share", f'share = {{ class = "latency", limit = "50%", memory = "{MEMORY_MIB}MiB" }}', rows)
    for row in rows:
        print(f"{'ok' if row['ok'] else 'FAILED':7} {row['setting']:6} {row['what']:48} {row['seen']}")
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    main()
