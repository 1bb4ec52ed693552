"""A bursty trace that is served beside a training on one GPU: `python3 tests/gpu/serving.py --weft PATH --out FILE`.

In three settings, in turns, a part of the trace at a time: under Weft; as clients of MPS; and each with the GPU to itself,
which stands for a GPU each. What is served has an objective: requests that are late, refused or lost violate it. Programs
are started once and have nothing to do in between. Needs an NVIDIA GPU, MPS, and Python with PyTorch, torchvision,
transformers and numpy. Writes JSON after every part, and goes on with what is missing where that file is there: on a machine
that is lent for minutes, `--parts 3` at a time. Ends with status 1 where Weft does not reach what was asked: 1% of violations
at most, and 0.7 of the training alone.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "..", "..", "bench", "workloads")
SETTINGS = ["weft", "mps", "alone"]
WARM_S, PATIENCE_S = 3, 180
VIOLATIONS_MOST, TRAINING_LEAST = 0.01, 0.7


def rates(seconds, base, seed):
    """Requests a second, a number for each second: a low rate, and bursts of four times as many."""
    chance, lines = random.Random(seed), []
    while len(lines) < seconds:
        lines += [base] * chance.randint(8, 20) + [4 * base] * chance.randint(3, 8)
    return lines[:seconds]


class Setting:
    """What serves and what trains in one setting."""

    def __init__(self, name, asked, folder):
        self.name, self.asked, self.folder = name, asked, os.path.join(folder, name)
        os.makedirs(self.folder)
        self.port = asked.port + 10 * SETTINGS.index(name)
        self.running, self.variables = [], dict(os.environ)
        self.variables["WEFT_SOCKET"] = os.path.join(self.folder, "node.sock")
        if name == "mps":
            self.start_mps()
        elif name == "weft":
            self.start([asked.weft, "node"], "node")

    def start(self, command, name, **options):
        log = open(os.path.join(self.folder, name + ".txt"), "w")
        process = subprocess.Popen(command, env=self.variables, stderr=log, **{"stdout": log, **options})
        self.running.append(process)
        return process

    def start_mps(self):
        for variable in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            self.variables[variable] = os.path.join(self.folder, variable.lower())
            os.makedirs(self.variables[variable])
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=self.variables, check=True)

    def serve(self):
        share = '[model.share]\nclass = "latency"\n' if self.name == "weft" else ""
        config = os.path.join(self.folder, "weft.toml")
        with open(config, "w") as file:
            file.write(f'[node]\npython = "{sys.executable}"\n\n[[model]]\nname = "served"\nkind = "python"\n'
                       f'path = "{self.asked.served}"\nslo = "{self.asked.slo}ms"\nmax_batch = 8\n\n{share}')
        ports = [f"127.0.0.1:{self.port + number}" for number in range(3)]
        words = ["--http", ports[0], "--grpc", ports[1], "--metrics", ports[2]]
        self.start([self.asked.weft, "up", config, *words, "--state", os.path.join(self.folder, "state")], "up")

    def train(self):
        words = self.asked.training.split()
        if self.name == "weft":
            words = [self.asked.weft, "run", "--class", "best-effort", "--name", "training", "--", *words]
        self.trainer = self.start(words, "training", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait(self):
        if not any(line.strip() == "ready" for line in self.trainer.stdout):
            self.fail("training", "the training ended before it was ready")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/models/served/ready", timeout=5)
                return
            except OSError:
                if time.monotonic() > deadline:
                    self.fail("up", f"the model is not ready after {PATIENCE_S} s")
                time.sleep(0.2)

    def fail(self, name, problem):
        with open(os.path.join(self.folder, name + ".txt")) as log:
            sys.exit("".join([f"{self.name}: {problem}; it said last:\n", *log.readlines()[-10:]]))

    def order(self, seconds):
        begin = time.monotonic_ns() + WARM_S * 1_000_000_000
        self.trainer.stdin.write(json.dumps({"at_ns": begin, "seconds": seconds, "rate": 0, "seed": 0}, separators=(",", ":")) + "\n")
        self.trainer.stdin.flush()

    def trained(self):
        """Steps a second."""
        line = self.trainer.stdout.readline()
        if not line:
            self.fail("training", "the training ended")
        answer = json.loads(line)
        return answer.get("per_second", answer["done"] / max(answer["seconds"], 1e-9))

    def load(self, trace, seconds, seed):
        words = [f"--arrivals=trace:{trace}:per-second", f"--duration={seconds}s", f"--warmup={WARM_S}s",
                 f"--slo={self.asked.slo}ms", f"--seed={seed}", "--model=served", "--shape=IMAGE:1x3x224x224"]
        command = [self.asked.weft, "load", f"--url=http://127.0.0.1:{self.port}", *words, "--json"]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"{self.name}: {ran.stderr.strip()}")
        return json.loads(ran.stdout)

    def part(self, trace, seconds, seed):
        """A part of the trace: what was served and trained at the same time, or one after the other."""
        if self.name == "alone":
            report = self.load(trace, seconds, seed)
            self.order(min(seconds, self.asked.alone))
            return report, self.trained()
        self.order(seconds)
        report = self.load(trace, seconds, seed)
        return report, self.trained()

    def end(self):
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            process.wait()
        if self.name == "mps":
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=self.variables)


def gpu():
    try:
        names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
        return names.stdout.strip()
    except OSError:
        return ""


def before(path, told):
    """The parts that an earlier run of the same measured."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        found = json.load(file)
    if different := [what for what in told if found.get(what) != told[what]]:
        sys.exit(f"{path} was measured otherwise ({', '.join(different)}); name another file")
    return found["parts"]


def summary(parts):
    """What each setting came to."""
    said = {}
    for name in SETTINGS:
        own = [part for part in parts if part["setting"] == name]
        if not own:
            continue
        offered, good = (sum(part["served"][what] for part in own) for what in ("offered", "good"))
        steps = sum(part["steps_per_second"] for part in own) / len(own)
        said[name] = {"requests": offered, "violations": 1 - good / max(offered, 1), "steps_per_second": steps,
                      "p99_ms": max(part["served"]["latency_ms"]["p99"] for part in own)}
    for one in said.values():
        if "alone" in said:
            one["training"] = one["steps_per_second"] / max(said["alone"]["steps_per_second"], 1e-9)
    return said


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--weft", required=True)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--settings", default=",".join(SETTINGS))
    arguments.add_argument("--seconds", type=int, default=600, help="of the trace, in each setting")
    arguments.add_argument("--part", type=int, default=60, help="seconds of the trace at a time")
    arguments.add_argument("--parts", type=int, default=1000, help="parts to measure now")
    arguments.add_argument("--others", type=int, help="seconds of each part in the settings other than weft [default: all]")
    arguments.add_argument("--alone", type=int, default=10, help="seconds that the training is measured alone in a part")
    arguments.add_argument("--base", type=float, default=40, help="requests a second between bursts")
    arguments.add_argument("--slo", type=int, default=100, help="milliseconds")
    arguments.add_argument("--served", default=os.path.join(WORKLOADS, "served.py"))
    arguments.add_argument("--training", default=f"{sys.executable} {os.path.join(WORKLOADS, 'workload.py')} gpt2 --train")
    arguments.add_argument("--port", type=int, default=18000)
    asked = arguments.parse_args()
    names = asked.settings.split(",")
    if unknown := [name for name in names if name not in SETTINGS]:
        arguments.error(f"there is no setting `{unknown[0]}`; there are {', '.join(SETTINGS)}")
    for file in (asked.weft, asked.served):
        if not os.path.exists(file):
            arguments.error(f"there is no file {file}")
    asked.weft, asked.served = os.path.abspath(asked.weft), os.path.abspath(asked.served)
    # Where things lie on this machine is nobody's business.
    told = {what: getattr(asked, what) for what in ("seconds", "part", "others", "alone", "base", "slo")} | {"gpu": gpu()}
    parts = before(asked.out, told)
    done = max((part["part"] for part in parts), default=0)
    missing = list(enumerate(range(0, asked.seconds, asked.part)))[done:done + asked.parts]
    with tempfile.TemporaryDirectory(prefix="weft-serving-") as folder:
        settings = [Setting(name, asked, folder) for name in names]
        trace = os.path.join(folder, "trace.txt")
        try:
            time.sleep(1)
            for setting in settings:
                setting.serve()
                setting.train()
            for setting in settings:
                setting.wait()
            everything = rates(asked.seconds, asked.base, 1)
            for number, begin in missing:
                measured = []
                for place in range(len(settings)):
                    setting = settings[(number + place) % len(settings)]
                    length = asked.part if setting.name == "weft" else asked.others or asked.part
                    wanted = everything[begin:begin + min(length, asked.part)]
                    with open(trace, "w") as file:
                        file.writelines(f"{rate}\n" for rate in wanted)
                    served, steps = setting.part(trace, len(wanted), number + 1)
                    measured.append({"setting": setting.name, "part": number + 1, "served": served, "steps_per_second": steps})
                # A part that was measured in some settings only is measured again.
                parts += measured
                with open(asked.out, "w") as file:
                    json.dump({**told, "summary": summary(parts), "parts": parts}, file, indent=1)
        finally:
            for setting in settings:
                setting.end()
    said = summary(parts)
    for name, one in said.items():
        training = f"{one['training']:.2f} of alone" if "training" in one else f"{one['steps_per_second']:.2f} steps/s"
        print(f"{name:<6} violations {one['violations']:7.2%} of {one['requests']}, p99 {one['p99_ms']:.1f} ms, training {training}")
    weft = said.get("weft", {})
    bad = weft.get("violations", 0) > VIOLATIONS_MOST or weft.get("training", 1) < TRAINING_LEAST
    sys.exit("missed" if bad else 0)


main()
