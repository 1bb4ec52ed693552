"""Latency programs beside a training: how late the slowest requests are, and what the training keeps.

Each latency program runs natively and alone, and then beside a training: under each `weft` that is given, and under each
of --peers (`slices`: the driver's time slices, `mps`). Requests come at random at half load, regularly, and one after the
other, with the same arrivals each time. Alone is native, in the same run. Programs are CUDA graphs, or eager where their
name ends in `-eager`. Prints a table; with --out FOLDER also JSON.

`alone` in place of a training measures what a setting costs a program that has the GPU to itself.

Example: python3 bench/hardware/frontier.py --weft target/carry/weft --programs effnet decode --out "$OUT"
"""

import argparse
import json
import os
import subprocess
import tempfile
import time

LATENCY = """
import random, sys, time, torch
torch.manual_seed(0)
kind, _, eager = sys.argv[1].partition("-")
half = dict(device="cuda", dtype=torch.half)
if kind == "effnet":
    from torchvision.models import efficientnet_b0
    model, x = efficientnet_b0().eval().half().cuda(), torch.randn(8, 3, 224, 224, **half)
elif kind == "resnet50":
    from torchvision.models import resnet50
    model, x = resnet50().eval().half().cuda(), torch.randn(1, 3, 224, 224, **half)
elif kind == "bert":
    from transformers import BertConfig, BertModel
    bert, ids = BertModel(BertConfig()).eval().half().cuda(), torch.randint(0, 30000, (8, 128), device="cuda")
    model, x = lambda x: bert(x).pooler_output, ids
elif kind == "vit":
    from torchvision.models import vit_b_16
    model, x = vit_b_16().eval().half().cuda(), torch.randn(4, 3, 224, 224, **half)
else:
    # A step of a decoder of seven billion parameters: all weights are read once.
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            make = lambda i, o: torch.nn.Linear(i, o, bias=False, **half)
            self.qkv, self.out, self.up, self.down = make(4096, 12288), make(4096, 4096), make(4096, 22016), make(11008, 4096)
        def forward(self, x):
            x = x + self.out(self.qkv(x)[:, :4096])
            gate, up = self.up(x).chunk(2, -1)
            return x + self.down(torch.nn.functional.silu(gate) * up)
    model, x = torch.nn.Sequential(*[Layer() for _ in range(32)]).eval(), torch.randn(8, 4096, **half)
stream = torch.cuda.Stream()
with torch.inference_mode(), torch.cuda.stream(stream):
    for _ in range(3):
        model(x)
torch.cuda.synchronize()
if eager:
    def request():
        with torch.inference_mode():
            model(x)
        torch.cuda.synchronize()
else:
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        y = model(x)
    def request():
        graph.replay()
        torch.cuda.synchronize()
for _ in range(50):
    request()
start = time.perf_counter()
for _ in range(200):
    request()
own = (time.perf_counter() - start) / 200
print("ready", own, flush=True)
for line in sys.stdin:
    how, seconds, alone = line.split()
    seconds, alone = float(seconds), float(alone) or own
    draw = random.Random(7)
    every = {"random": lambda: draw.expovariate(0.5 / alone), "every": lambda: 4.5 * alone, "row": lambda: 0.0}[how]
    due, took, begun = time.perf_counter(), [], time.perf_counter()
    while due < begun + seconds:
        due += every()
        if how == "row":
            due = time.perf_counter()
        while time.perf_counter() < due:
            pass
        request()
        took.append((time.perf_counter() - due, due))
    passed = time.perf_counter() - begun
    took.sort()
    (longest, came), figures = took[-1], [took[len(took) // 2][0], took[int(len(took) * 0.99)][0]]
    print("done", len(took) / passed, *figures, longest, came, flush=True)
"""

TRAINING = """
import signal, sys, torch
torch.manual_seed(0)
# Ended between two steps: whoever dies in the middle of a kernel takes others under MPS with it.
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
step = 0
if sys.argv[1] == "gemm":
    # Products of matrices that take about 170 ms each.
    a, b = (torch.randn(40960, 40960, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    while not ending:
        torch.mm(a, b, out=out)
        torch.cuda.synchronize()
        step += 1
        print(step, flush=True)
    sys.exit()
if sys.argv[1] == "vit-l":
    from torchvision.models import vit_l_16
    model = vit_l_16().cuda()
    x, labels = torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (16,), device="cuda")
    loss_of = lambda: torch.nn.functional.cross_entropy(model(x), labels)
elif sys.argv[1] == "bert-l":
    from transformers import BertConfig, BertForMaskedLM
    shape = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    model = BertForMaskedLM(shape).cuda()
    ids = torch.randint(0, 30000, (16, 256), device="cuda")
    loss_of = lambda: model(input_ids=ids, labels=ids).loss
else:
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    ids = torch.randint(0, 50000, (8, 1024), device="cuda")
    loss_of = lambda: model(input_ids=ids, labels=ids).loss
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
while not ending:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_of()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    step += 1
    print(step, flush=True)
"""


class Program:
    """A process whose lines are read as they come."""

    def __init__(self, words, text, kind, environment=None):
        log = open(f"/tmp/frontier-{kind}.log", "a")
        words = words + ["python3", "-c", text, kind]
        pipe, environment = subprocess.PIPE, {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = ""

    def lines(self):
        try:
            self.rest += os.read(self.process.stdout.fileno(), 65536).decode()
        except BlockingIOError:
            pass
        *lines, self.rest = self.rest.split("\n")
        return lines

    def wait(self, word, limit=90.0):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            for line in self.lines():
                if line.startswith(word):
                    return line
            time.sleep(0.005)
        raise SystemExit(f"waited in vain for {word!r}")

    def ask(self, how, seconds, alone=0.0):
        self.process.stdin.write(f"{how} {seconds} {alone}\n")
        self.process.stdin.flush()
        words = self.wait("done", seconds * 3 + 60).split()
        # `came`: when the request that took longest came, by the machine's clock, as journals have it.
        return dict(zip(("rate", "p50", "p99", "longest", "came"), map(float, words[1:])))

    def end(self):
        """By its input's end or by SIGTERM, whichever it looks at."""
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Setting:
    """A way to share the GPU: the driver's time slices, MPS, or a build of Weft."""

    def __init__(self, name, arguments, journals):
        self.name, self.arguments, self.daemon, self.environment = name, arguments, None, None
        self.is_weft = name not in ("slices", "mps")
        if name == "mps":
            folder = tempfile.mkdtemp(prefix="mps-")
            self.environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
            subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.environment}, check=True)
        elif self.is_weft and journals:
            self.daemon = subprocess.Popen([name, "node", "--record", journals])
            time.sleep(1.0)

    def start(self, text, kind, tenant, share):
        words = []
        if self.is_weft:
            words = [self.name, "run", "--share", self.arguments.share, "--name", tenant, *share, "--"]
        return Program(words, text, kind, self.environment)

    def notes(self):
        if not self.is_weft:
            return ""
        top = subprocess.run([self.name, "top", "--once", "--json"], capture_output=True, text=True, check=False)
        tenants = [one for gpu in json.loads(top.stdout or "{}").get("gpus", []) for one in gpu["tenants"]]
        return "; ".join(one["note"] for one in tenants if one.get("note"))

    def end(self):
        if self.name == "mps":
            control = ["nvidia-cuda-mps-control"]
            environment = {**os.environ, **self.environment}
            subprocess.run(control, input="quit\n", text=True, env=environment, check=False, timeout=30)
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()


def steps_alone(training, seconds):
    program = Program([], TRAINING, training)
    program.wait("8")
    begun, steps = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        steps += len(program.lines())
        time.sleep(0.005)
    passed = time.monotonic() - begun
    program.end()
    return steps / passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", nargs="*", default=["target/release/weft"])
    parser.add_argument("--peers", nargs="*", default=[], choices=["slices", "mps"])
    parser.add_argument("--programs", nargs="*", default=["effnet"])
    parser.add_argument("--trainings", nargs="*", default=["vit-l"])
    parser.add_argument("--how", nargs="*", default=["random", "every", "row"])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warm", type=float, default=6.0)
    parser.add_argument("--share", default="time")
    parser.add_argument("--request", help="what the training requests, such as 5%%")
    parser.add_argument("--record", metavar="FOLDER", help="have each daemon write its journals there")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    os.environ["WEFT_SOCKET"] = os.path.join(tempfile.mkdtemp(prefix="weft-"), "node.sock")
    beside = [training for training in arguments.trainings if training != "alone"]
    alone_steps, rows = {training: steps_alone(training, 4.0) for training in beside}, []
    requests = ["--request", arguments.request] if arguments.request else []
    for kind in arguments.programs:
        native = Program([], LATENCY, kind)
        own = float(native.wait("ready").split()[1])
        alone = {how: native.ask(how, arguments.seconds, own) for how in arguments.how}
        native.end()
        for index, name in enumerate(arguments.peers + arguments.weft):
            journals = arguments.record and os.path.join(arguments.record, f"{kind}-{index}")
            setting = Setting(name, arguments, journals)
            for training in arguments.trainings:
                serve = setting.start(LATENCY, kind, "serve", ["--class", "latency"])
                ready, train = float(serve.wait("ready").split()[1]), None
                if training != "alone":
                    train = setting.start(TRAINING, training, "train", ["--class", "best-effort", *requests])
                    train.wait("3")
                for how in arguments.how:
                    serve.ask(how, arguments.warm, own)
                    if train:
                        train.lines()
                    begun = time.monotonic()
                    found = serve.ask(how, arguments.seconds, own)
                    passed = time.monotonic() - begun
                    kept = len(train.lines()) / passed / alone_steps[training] if train else None
                    row = {"setting": name, "program": kind, "training": training, "request": arguments.request}
                    row.update(share=arguments.share, how=how, alone=alone[how], beside=found, kept=kept)
                    row.update(note=setting.notes(), ready=ready, own=own)
                    rows.append(row)
                    keep(arguments.out, alone_steps, rows)
                serve.end()
                if train:
                    train.end()
                time.sleep(1.0)
            setting.end()


def keep(folder, steps, rows):
    """What was found so far: a run that is ended early has that."""
    if folder:
        with open(os.path.join(folder, "frontier.json"), "w") as file:
            json.dump({"steps": steps, "rows": rows}, file, indent=1)
    if len(rows) == 1:
        columns = f"{'setting':>12} {'program':>12} {'training':>8} {'how':>7} {'alone ms':>8}"
        print(f"{columns} {'p99':>7} {'rate':>6} {'kept':>6}  note", flush=True)
    row = rows[-1]
    alone, beside = row["alone"], row["beside"]
    p99, rate = beside["p99"] / alone["p99"], beside["rate"] / alone["rate"]
    kept = "-" if row["kept"] is None else f"{row['kept']:.3f}"
    print(
        f"{row['setting'][-12:]:>12} {row['program']:>12} {row['training']:>8} {row['how']:>7} {alone['p99'] * 1e3:8.2f}"
        f" {p99:7.3f} {rate:6.3f} {kept:>6}  {row['note']}",
        flush=True,
    )


if __name__ == "__main__":
    main()
