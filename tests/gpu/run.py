"""What only a real GPU can show: `cargo xtask gpu-test`, or python tests/gpu/run.py --weft PATH.

Runs real programs under `weft run` and natively, in turns, and prints one table. Needs an NVIDIA GPU, gcc, and for most
rows PyTorch; rows whose framework is not installed say so.
"""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = []


def row(what, figure, good, **raw):
    ROWS.append({"part": PART, "what": what, "figure": figure, "good": good, **raw})
    print(f"{'ok    ' if good else 'MISSED' if good is not None else 'SKIP  '}  {what:<58} {figure}", flush=True)


def weft_run(share, command):
    return [WEFT, "run", *share, "--", *command]


def workload(name, *arguments, share=None, seconds=120, **variables):
    """Runs a workload to its end and gives what it printed, or why not."""
    command = [sys.executable, os.path.join(HERE, "workload.py"), name, *map(str, arguments)]
    command = command if share is None else weft_run(share, command)
    # One core, so that what is compared does not wander between fast and slow ones.
    command = ["taskset", "-c", "2", *command] if name == "resnet" else command
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=ENVIRONMENT | variables)
    except subprocess.TimeoutExpired:
        return None, "it took too long"
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return (json.loads(lines[-1]), "") if ran.returncode == 0 and lines else (None, ran.stderr.strip()[-300:])


def program(name, folder):
    binary = os.path.join(folder, name)
    source = os.path.join(HERE, "..", "programs", name + ".c")
    build = ["gcc", "-O2", "-rdynamic", "-D_GNU_SOURCE", "-o", binary, source, "-ldl", "-lpthread", "-lm"]
    subprocess.run(build, check=True)
    return binary


def share_of(line):
    return float(dict(word.split("=") for word in line.split())["share"])


def doctor():
    said = subprocess.run([WEFT, "doctor"], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    print(said.stdout, said.stderr, sep="")
    problems = [line for line in said.stdout.splitlines() if not line.startswith("ok")]
    row("weft doctor", f"{len(said.stdout.splitlines()) - len(problems)} lines ok, {len(problems)} not", not problems,
        # Where things lie on this machine is nobody's business.
        lines=[line for line in said.stdout.splitlines() if line.split()[1:2] not in (["library"], ["daemon"])])


def overhead(rounds):
    ratios, tails, alone = [], [], []
    for _ in range(rounds):
        one, why = workload("resnet", 3)
        two, other = workload("resnet", 3, share=["--class", "latency"])
        if not one or not two:
            return row("ResNet50 batch 1 under the library", f"failed: {why or other}", None)
        ratios.append(two["per_second"] / one["per_second"])
        tails.append(two["p99_ms"] / one["p99_ms"])
        alone.append(one["per_second"])
    middle, noise = statistics.median(ratios), (max(alone) - min(alone)) / statistics.median(alone)
    text = f"{middle:.3f} of alone [{min(ratios):.3f}, {max(ratios):.3f}]; alone varied by {noise:.0%}"
    row("ResNet50 batch 1 under the library, throughput", text, abs(middle - 1) <= max(0.01, noise / 2),
        ratios=ratios, p99_ratios=tails, alone_per_second=alone)


def truth():
    cases = [("eager", {}), ("graphs", {}), ("compiled", {}), ("triton", {}), ("cupy", {}),
             ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
             ("segments", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
             ("segments", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})]
    for name, variables in cases:
        title = f"counted as it was: {name} {' '.join(variables.values())}".strip()
        found, why = workload(name, share=["--class", "standard"], **variables)
        if not found:
            row(title, f"failed: {why.splitlines()[-1] if why else ''}", None)
            continue
        parts, good = [], True
        if "launches_true" in found:
            parts.append(f"{found['launches_seen']} of {found['launches_true']} launches")
            good &= found["launches_seen"] == found["launches_true"]
        if "bytes_true" in found:
            parts.append(f"{found['bytes_seen'] / 2**20:.0f} of {found['bytes_true'] / 2**20:.0f} MiB")
            # The driver is asked in whole MiB, and rounds allocations up to its own granules.
            good &= abs(found["bytes_seen"] - found["bytes_true"]) <= 4 << 20
        row(title, ", ".join(parts), good, **found)


def quotas(folder, shares, seconds):
    closed = program("closedloop", folder)
    for graphs in (0, 1):
        worst, given = 0, {}
        for asked in shares:
            busy = subprocess.Popen(
                weft_run(["--name", "busy"], [closed, "--seconds", str(seconds + 2), "--us", "200", "--graphs", str(graphs)]), env=ENVIRONMENT,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1)
            share = ["--name", "quota", "--request", f"{asked}%", "--limit", f"{asked}%"]
            command = [closed, "--seconds", str(seconds), "--us", "100", "--graphs", str(graphs)]
            ran = subprocess.run(weft_run(share, command), capture_output=True, text=True, env=ENVIRONMENT)
            busy.wait()
            given[asked] = share_of(ran.stdout) * 100 if ran.returncode == 0 else float("nan")
            worst = max(worst, abs(given[asked] - asked))
        kind = "graphs" if graphs else "launches"
        text = " ".join(f"{asked}:{got:.1f}" for asked, got in given.items())
        row(f"quota beside a busy neighbour, {kind}, percent asked:given", text, worst <= 3, given=given)


def memory(folder):
    found, why = workload("refused", share=["--memory", "4GiB"])
    good = bool(found and found["refused"] and found["goes_on"] and found["total"] == 4 << 30)
    row("8 GiB under a cap of 4 GiB, PyTorch", json.dumps(found) if found else why, good)
    paths = program("allocations", folder)
    command = [paths, "--managed", "0", "512", "3000", "6000"]
    native = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    capped = subprocess.run(weft_run(["--memory", "4GiB"], command), capture_output=True, text=True, env=ENVIRONMENT)
    print(capped.stdout)
    wrong = [line for line in capped.stdout.splitlines() if " 6000 " in f" {line} " and ": 0" in line]
    row("6000 MiB by every path under a cap of 4 GiB", f"exit {native.returncode} and {capped.returncode}; passed: {wrong}",
        capped.returncode == 0 and not wrong, native=native.stdout, capped=capped.stdout)


def tenants():
    status = subprocess.run([WEFT, "top", "--json"], capture_output=True, text=True, env=ENVIRONMENT)
    if status.returncode:
        return None, []
    found = json.loads(status.stdout)
    return found.get("pid"), [tenant for gpu in found["gpus"] for tenant in gpu["tenants"]]


# What tenants are in turn, and for how many microseconds they sleep after each kernel.
CLASSES = (("latency", 4000), ("standard", 2000), ("best-effort", 0))
TENANTS = 16
# What counts as the moments after a death.
AFTER_NS = 50_000_000


class Tenant:
    """A program under a share that keeps when each of its waits ended, and how long it was."""

    def __init__(self, folder, closed, place, life):
        kind, pause = CLASSES[place % len(CLASSES)]
        self.log, self.offset, self.waits = os.path.join(folder, f"waits-{place}-{life}"), 0, []
        command = [closed, "--seconds", "600", "--memory", "256", "--every", "1", "--pause", str(pause)]
        self.process = subprocess.Popen(
            weft_run(["--name", f"tenant-{place}", "--class", kind], command), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(ENVIRONMENT, CLOSEDLOOP_LOG=self.log))

    def longest(self, from_ns):
        """The longest wait that was under way in the moments from then on, in milliseconds."""
        with open(self.log, "rb") as log:
            log.seek(self.offset)
            for ended, wait in struct.iter_unpack("=QQ", log.read(1 << 20)):
                if ended == 0:
                    break
                self.offset += 16
                self.waits.append((ended, wait))
        under_way = (wait for ended, wait in self.waits if ended > from_ns and ended - wait < from_ns + AFTER_NS)
        return max(under_way, default=0) / 1e6


def until(ready):
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.005)


def deaths(folder, rounds):
    closed, chance = program("closedloop", folder), random.Random(1)
    running = [Tenant(folder, closed, place, 0) for place in range(TENANTS)]
    working = lambda: sum(tenant["launches"] > 0 for tenant in tenants()[1]) == TENANTS
    until(working)
    after, between, gone = [], [], 0
    for turn in range(rounds):
        time.sleep(chance.uniform(0.05, 0.1))
        quiet = time.time_ns()
        time.sleep(chance.uniform(0.05, 0.07))
        place = chance.randrange(TENANTS)
        victim, died = running[place].process, time.time_ns()
        victim.kill()
        until(lambda: all(victim.pid not in tenant["processes"] for tenant in tenants()[1]))
        gone = max(gone, time.time_ns() - died)
        victim.wait()
        time.sleep(0.1)
        for other, tenant in enumerate(running):
            if other != place:
                between.append(tenant.longest(quiet))
                after.append(tenant.longest(died))
        running[place] = Tenant(folder, closed, place, turn + 1)
        until(working)
    alive = all(one.process.poll() is None for one in running)
    at = lambda waits, part: sorted(waits)[min(int(len(waits) * part), len(waits) - 1)]
    tell = lambda waits: " ".join(f"{name} {at(waits, part):.1f}" for name, part in (("p50", 0.5), ("p99", 0.99), ("longest", 1)))
    row(f"{rounds} times SIGKILL among {TENANTS} tenants, the longest wait of each other in 50 ms",
        f"after: {tell(after)} ms; without: {tell(between)} ms; gone after at most {gone / 1e6:.0f} ms, asking included; "
        f"others alive: {alive}", alive and at(after, 0.99) <= at(between, 0.99) + 10, after_ms=after, between_ms=between)
    for _ in range(rounds // 2):
        os.kill(tenants()[0], 9)
        time.sleep(0.05)
        # Whoever runs something next starts a daemon again.
        subprocess.run(weft_run(["--name", "next"], ["true"]), env=ENVIRONMENT, check=True)
        time.sleep(0.1)
    time.sleep(0.4)
    alive = all(one.process.poll() is None for one in running)
    back = len({tenant["name"] for tenant in tenants()[1]} & {f"tenant-{place}" for place in range(TENANTS)})
    row(f"daemon killed {rounds // 2} times under load", f"programs alive: {alive}, tenants back: {back} of {TENANTS}",
        alive and back == TENANTS)
    for one in running:
        one.process.kill()
        one.process.wait()
    time.sleep(0.2)
    left = [tenant["name"] for tenant in tenants()[1]]
    row("nothing is left of the dead", f"{left}", not left)


def preempted(folder):
    """Best-effort work that leaves the GPU to the bursts of others: whoever is killed meanwhile keeps nobody off it."""
    closed = program("closedloop", folder)
    burst = lambda: subprocess.Popen(
        weft_run(["--class", "latency", "--name", "serve", "--share", "time"],
                 [closed, "--seconds", "60", "--us", "5000", "--every", "1", "--pause", "5000"]), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    work = lambda length: subprocess.Popen(
        weft_run(["--class", "best-effort", "--name", "train", "--share", "time"],
                 [closed, "--seconds", str(length), "--us", "50000"]), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    train = lambda: next((one for one in tenants()[1] if one["name"] == "train"), None)
    is_preempted = lambda: (train() or {}).get("preemptions", 0) > 5
    serving = burst()
    for turn in range(3):
        working = work(60)
        until(is_preempted)
        found = train()
        time.sleep(random.Random(turn).uniform(0.001, 0.02))
        working.kill()
        working.wait()
        until(lambda: train() is None)
    row("best-effort work is preempted, and is killed meanwhile, three times",
        f"{found['preemptions']} times off the GPU in {found['channels']} channels: {found['note']}; the other alive: {serving.poll() is None}",
        serving.poll() is None)
    ends = work(2)
    code = ends.wait(timeout=30)
    row("it ends by itself beside bursts of others", f"exit {code}", code == 0)
    working = work(60)
    until(train)
    time.sleep(1)
    serving.kill()
    before = train()["launches"]
    time.sleep(1.5)
    after = train()["launches"]
    row("the one whose bursts they are is killed", f"{after - before} launches of 50 ms in 1.5 s after", after - before > 15)
    working.kill()
    working.wait()


def waits(log, after_s):
    """How long each wait took that a program kept, in milliseconds, but for those of its first seconds."""
    with open(log, "rb") as file:
        pairs = [pair for pair in struct.iter_unpack("=QQ", file.read()) if pair[0]]
    return sorted(wait / 1e6 for ended, wait in pairs if ended > pairs[0][0] + after_s * 1e9)


def first(folder):
    """A kernel of 20 us that comes now and then beside the training of GPT-2, whose longest kernels take 50 ms."""
    closed, trainer = program("closedloop", folder), os.path.join(HERE, "..", "..", "bench", "workloads", "workload.py")
    at = lambda found, part: found[min(int(len(found) * part), len(found) - 1)]
    tell = lambda found: f"p50 {at(found, 0.5):.2f}, p99 {at(found, 0.99):.2f}, longest {found[-1]:.2f} ms"

    def served(name, share, objective):
        log = os.path.join(folder, "first-" + name)
        command = weft_run([*share, "--class", "latency", "--slo", objective],
                           [closed, "--seconds", "10", "--us", "20", "--every", "1", "--pause", "9000"])
        subprocess.run(command, env=dict(ENVIRONMENT, CLOSEDLOOP_LOG=log), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return waits(log, 3)

    # In turns an objective is what it waits for: the longer it may be, the longer are the slices of others.
    for way, objective in (("time", "1ms"), ("space", "3ms")):
        alone = served("alone-" + way, ["--share", way], objective)
        training = subprocess.Popen(
            weft_run(["--class", "best-effort", "--name", "train", "--share", way], [sys.executable, trainer, "gpt2", "--train"]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        until(lambda: training.stdout.readline().strip() == "ready")
        rates = []
        for beside in (False, True):
            order = {"at_ns": time.monotonic_ns() + (3_500_000_000 if beside else 1_500_000_000), "seconds": 6 if beside else 3, "rate": 0}
            training.stdin.write(json.dumps(order) + "\n")
            training.stdin.flush()
            found = served(way, ["--share", way], objective) if beside else None
            rates.append(json.loads(training.stdout.readline())["per_second"])
        training.stdin.close()
        training.wait(timeout=60)
        longer = at(found, 0.99) - at(alone, 0.5)
        row(f"first launch beside the training of GPT-2, in {way} with --slo {objective}", f"{tell(found)}; alone {tell(alone)}; training {rates[1] / rates[0]:.2f} of alone",
            longer <= 1 and rates[1] > 0.2 * rates[0], waits_ms=found, alone_ms=alone, steps_per_second=rates)


def mps(folder):
    """The MPS server is killed while programs share in space: nobody hangs, others go on, and the next ones find a new one."""
    closed = program("closedloop", folder)
    start = lambda kind, way, *words: subprocess.Popen(
        weft_run(["--class", kind, "--name", f"{kind}-{way}", "--share", way], [closed, "--seconds", "60", *words]),
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    beside = [start("latency", "space", "--us", "500", "--pause", "5000"), start("best-effort", "space", "--us", "5000")]
    apart = start("standard", "time", "--us", "500", "--pause", "5000")
    launches = lambda name: next((one["launches"] for one in tenants()[1] if one["name"] == name), 0)
    until(lambda: min(map(launches, ("latency-space", "best-effort-space", "standard-time"))) > 10)
    servers = subprocess.run(["pgrep", "-f", "nvidia-cuda-mps-server"], capture_output=True, text=True).stdout.split()
    before, died = launches("standard-time"), time.monotonic()
    for server in servers:
        os.kill(int(server), 9)
    codes = [one.wait(timeout=60) for one in beside]
    ended = time.monotonic() - died
    try:
        until(lambda: launches("standard-time") > before + 10)
        goes_on = apart.poll() is None
    except TimeoutError:
        goes_on = False
    command = weft_run(["--class", "latency", "--share", "space"], [closed, "--seconds", "0.5", "--us", "100"])
    tries = 0
    while (code := subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=60).returncode) and time.monotonic() < died + 60:
        tries += 1
        time.sleep(0.2)
    again = time.monotonic() - died
    apart.kill()
    apart.wait()
    row(f"MPS server killed under load ({len(servers)} of them)",
        f"programs in space ended with {codes} after {ended:.1f} s; the one in time goes on: {goes_on}; the next in space ends with "
        f"{code}, {again:.1f} s after, at try {tries + 1}", bool(servers) and goes_on and code == 0, codes=codes, ended_s=ended, again_s=again)


def page(rows):
    """What was measured, for people."""
    lines = [line for row in rows for line in row.get("lines", [])]
    machine = next((line.split(None, 2)[2] for line in lines if line.startswith("ok       gpu")), "unknown")
    driver = next((line.split(None, 2)[2] for line in lines if line.startswith("ok       driver")), "unknown")
    state = {True: "yes", False: "**no**", None: "not run"}
    table = [f"| {row['what']} | {row['figure'].replace('|', '/')} | {state[row['good']]} |" for row in rows]
    return "\n".join([
        "# Shares on a real GPU", "", "<!-- Written by `tests/gpu/run.py` from gpu.json; do not edit. -->", "",
        f"- Command: `cargo xtask gpu-test`, or where there is no Rust `python tests/gpu/run.py`\n- Machine: {machine.split(None, 1)[1].split(', GPU-')[0]}), driver {driver}", "",
        "Truth for launches is CUPTI's count, for memory what the driver says is in use. A quota is the time of the kernels "
        "that a program ran over the time that passed, beside another program that always has work. Programs that are "
        "compared ran in turns in one run; the same program alone varies by as much as is stated. Parts may have been measured "
        "in different runs.", "",
        "| what | figure | as it should be |", "|---|---|---|", *table, ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weft", default="target/release/weft", help="the weft binary, with libweft.so beside it")
    parser.add_argument("--json", help="where to write what was measured")
    parser.add_argument("--page", help="where to write the same for people")
    parser.add_argument("--page-of", metavar="JSON", help="write the page of what was measured before, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--only", default="", help="names of parts, by comma; of others, what the JSON says is kept")
    options = parser.parse_args()
    if options.page_of:
        with open(options.page_of) as file, open(options.page, "w") as out:
            out.write(page(json.load(file)["rows"]))
        sys.exit(0)
    WEFT = os.path.abspath(options.weft)
    folder = tempfile.mkdtemp()
    ENVIRONMENT = dict(os.environ, WEFT=WEFT, WEFT_SOCKET=os.path.join(folder, "node.sock"), WEFT_QUIET="1")
    quick = options.quick
    parts = {
        "doctor": doctor,
        "truth": truth,
        "memory": lambda: memory(folder),
        "quotas": lambda: quotas(folder, [10, 50, 90] if quick else range(10, 100, 10), 2 if quick else 3),
        "deaths": lambda: deaths(folder, 10 if quick else 100),
        "preempted": lambda: preempted(folder),
        "first": lambda: first(folder),
        "mps": lambda: mps(folder),
        "overhead": lambda: overhead(2 if quick else 6),
    }
    asked = [name for name in parts if not options.only or name in options.only.split(",")]
    kept = []
    if options.json and options.only and os.path.exists(options.json):
        with open(options.json) as file:
            kept = [one for one in json.load(file)["rows"] if one["part"] not in asked]
    for PART in asked:
        began = time.monotonic()
        try:
            parts[PART]()
        except Exception as error:
            row(PART, f"{type(error).__name__}: {error}", False)
        print(f"{PART} took {time.monotonic() - began:.0f} s", file=sys.stderr)
        # After every part, so that what was measured is kept when a later one is stopped.
        rows = sorted(kept + ROWS, key=lambda one: list(parts).index(one["part"]))
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"rows": rows}, file, indent=1)
        if options.page:
            with open(options.page, "w") as file:
                file.write(page(rows))
    sys.exit(0 if all(one["good"] is not False for one in ROWS) else 1)
