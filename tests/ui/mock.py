#!/usr/bin/env python3
"""Serves the dashboard with made-up numbers that move, for looking at it and for check.mjs.

    python3 tests/ui/mock.py --port 8002 --models 12

What it makes up: steady models, one that is overloaded, one above its objective, one that loads, one that cannot start,
one whose worker dies again and again, one that nobody calls, and names that would be markup if a page let them.

POST /mock/down and /mock/up stop and start the answers, /mock/hang leaves them open, /mock/restart begins anew as
another server process would, /mock/models?n=N changes how many models there are.
"""

import argparse
import gzip
import json
import math
import pathlib
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE = pathlib.Path(__file__).resolve().parents[2] / "crates/gateway/ui/index.html"
KEEP = 600
SIZES = [1, 2, 4, 8, 16, 32, 64]
GIB = 1 << 30

# name, version, kind, objective ms, largest batch, workers, rate/s, capacity/s, behaviour
CAST = [
    ("resnet50", 3, "onnx", 50, 32, 3, 900, 1600, "steady"),
    ("magika", 1, "onnx", 100, 64, 2, 420, 700, "wave"),
    ("bert-base-uncased", 2, "python", 80, 16, 2, 260, 300, "overload"),
    ("ranker", 7, "onnx", 20, 64, 2, 1500, 1700, "above"),
    ("whisper-small", 1, "python", 900, 8, 1, 0, 20, "loading"),
    ("ocr-legacy", 1, "python", 250, 4, 1, 3, 20, "unavailable"),
    ("<img src=x onerror=alert(1)>", 1, "python", 200, 8, 1, 35, 60, "steady"),
    ("flaky-segmenter", 4, "python", 120, 8, 2, 60, 110, "dying"),
    ("embedder-multilingual-with-a-name-that-goes-on-and-on-large-v2-instruct-fp16", 2, "virtual", 30, 32, 2, 2300, 2600, "wave"),
    ("nightly-batch", 1, "onnx", 5000, 128, 1, 0, 50, "idle"),
    ("\"><script>alert(2)</script>", 2, "virtual", 10, 0, 1, 8, 90, "steady"),
    ("resnet50", 4, "onnx", 50, 32, 1, 4, 500, "steady"),
]


def poisson(rng, mean):
    if mean <= 0:
        return 0
    if mean > 30:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count, product = count + 1, product * rng.random()
    return count


class Model:
    def __init__(self, index, rng):
        self.rng = rng
        self.index = index
        if index < len(CAST):
            (self.name, self.version, self.kind, self.slo, self.max_batch, self.wanted, self.rate, self.capacity,
             self.behaviour) = CAST[index]
        else:
            self.name, self.version, self.kind = f"model-{index:03}", 1, rng.choice(["onnx", "python", "virtual"])
            self.slo, self.max_batch = rng.choice([10, 25, 50, 100, 250, 1000]), rng.choice([8, 16, 32, 64])
            self.wanted, self.rate = rng.choice([1, 2, 2, 3, 4]), rng.choice([0, 2, 15, 80, 200, 400])
            self.capacity, self.behaviour = self.rate * rng.uniform(1.1, 3) + 10, rng.choice(["steady", "steady", "wave"])
        self.phase = rng.uniform(0, 6)
        self.queue = 0
        self.samples = []
        self.state, self.reason, self.ready = "ready", "", self.wanted

    def tick(self, seq):
        rng, rate, capacity = self.rng, self.rate, self.capacity
        self.state, self.reason, self.ready = "ready", "", self.wanted
        if self.behaviour == "wave":
            rate *= 1 + 0.35 * math.sin(seq / 40 + self.phase)
        elif self.behaviour == "overload" and seq % 240 > 110:
            rate *= 3
        elif self.behaviour == "loading" and seq % 900 < 780:
            self.state, self.reason, self.ready, capacity = "loading", f"measuring batch {1 << (seq // 7 % 4)}", 0, 0
        elif self.behaviour == "loading":
            rate = 9
        elif self.behaviour == "unavailable":
            self.state, self.ready, capacity = "unavailable", 0, 0
            self.reason = "worker ended 5 times: ImportError: libGL.so.1: cannot open shared object file"
        elif self.behaviour == "dying" and seq % 45 < 12:
            self.ready, capacity = 1, capacity / 2
        offered = poisson(rng, rate * rng.uniform(0.92, 1.08))
        good = late = failed = 0
        refusals = [0] * 6
        if not self.ready:
            refusals[5] = offered
            self.push(seq, offered, 0, 0, 0, refusals, None, 0, 0, [])
            return
        load = offered / capacity
        served = min(offered, round(capacity * rng.uniform(0.95, 1.02)))
        over = offered - served
        refusals[0] = round(over * 0.72)
        refusals[1] = round(over * 0.2)
        refusals[4] = round(over * 0.05)
        refusals[2] = over - sum(refusals)
        if self.behaviour == "dying" and seq % 45 == 0:
            refusals[3] = min(served, 5)
            served -= refusals[3]
        stretch = {"above": 2.1}.get(self.behaviour, 1) * (0.32 + 0.5 * min(1, load) ** 3) * rng.uniform(0.9, 1.12)
        p99 = min(self.slo * stretch, self.slo * (2.6 if self.behaviour == "above" else 0.985))
        p90, p50 = p99 * rng.uniform(0.72, 0.82), p99 * rng.uniform(0.38, 0.48)
        if p99 > self.slo:
            late = round(served * 0.03)
        if self.kind == "python":
            failed = poisson(rng, served * 0.002)
            served -= min(failed, served)
        good = served - late
        self.queue = max(0, round(load * 6 * rng.uniform(0.4, 1.6) + (capacity * self.slo / 2500 if load > 1 else 0)))
        batches, ran = [0] * 8, 0
        most = max(1, self.max_batch)
        while ran < served:
            size = min(most, max(1, round(rng.gauss(0.65 * most * min(1.1, load) + 0.6, 0.14 * most))), served - ran)
            batches[sum(size > bound for bound in SIZES)] += 1
            ran += size
        self.push(seq, offered, good, late, failed, refusals, (p50, p90, p99) if served else None,
                  self.queue, round(min(1, load) * most * self.ready * 0.7), batches, ran)

    def push(self, seq, offered, good, late, failed, refusals, latency, queue, running, batches, ran=0):
        latency = [round(value, 2) for value in latency] if latency else [None] * 3
        row = [seq, offered, good, late, failed, *refusals, *latency, queue, running, ran, *batches]
        while len(row) > 1 and not row[-1]:
            row.pop()
        if len(row) > 1:
            self.samples.append(row)
        while self.samples and self.samples[0][0] <= seq - KEEP:
            self.samples.pop(0)

    def told(self, seq, since):
        recent = [row for row in self.samples[-10:] if row[0] > seq - 10 and len(row) > 13 and row[13]]
        latency = [round(sum(row[11 + i] for row in recent) / len(recent), 2) for i in range(3)] if recent else None
        return {
            "name": self.name, "version": self.version, "kind": self.kind, "state": self.state, "reason": self.reason,
            "slo_ms": self.slo, "max_batch": self.max_batch, "queue_limit": 4096, "workers_ready": self.ready,
            "workers_wanted": self.wanted, "latency_ms": latency,
            "samples": [row for row in self.samples if row[0] > since],
        }


class Cluster:
    def __init__(self, models, history):
        self.lock = threading.Lock()
        self.history, self.count = history, models
        self.generation = 0
        self.begin(models, history)

    def begin(self, count, history):
        self.generation += 1
        rng = random.Random(7)
        self.count, self.seq, self.began = count, 0, time.time() - history
        self.models = [Model(index, random.Random(f"{index}")) for index in range(count)]
        self.workers, number = [], 1
        for model in self.models:
            for place in range(model.wanted):
                self.workers.append({
                    "id": number, "model": model, "place": place, "gpu": number // 5 % 4, "node": f"node-{number // 20 + 1}",
                    "share": rng.choice([0.1, 0.15, 0.2]), "memory": rng.uniform(0.4, 7) * GIB, "busy": [],
                })
                number += 1
        for second in range(history):
            self.tick()

    def tick(self):
        self.seq += 1
        for model in self.models:
            model.tick(self.seq)
        for worker in self.workers:
            model = worker["model"]
            load = 0
            if worker["place"] < model.ready and model.samples and model.samples[-1][0] == self.seq:
                load = min(1, model.samples[-1][1] / max(1, model.capacity)) * model.rng.uniform(0.85, 1)
            worker["busy"] = (worker["busy"] + [round(load * 100)])[-KEEP:]

    def told(self, since):
        with self.lock:
            if since > self.seq:
                since = 0
            missed = min(KEEP, self.seq - since)
            gpus = {}
            workers = []
            for worker in self.workers:
                model, dead = worker["model"], worker["place"] >= worker["model"].ready
                state, error, restarts, again = "ready", "", 0, None
                if dead and model.behaviour == "loading":
                    state = "starting"
                elif dead and model.behaviour == "unavailable":
                    state, restarts, again = "restarting", 5, 60 - self.seq % 60
                    error = ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n"
                             "  in File \"model.py\", line 3: import cv2 <b onmouseover=alert(3)>bold</b>")
                elif dead:
                    state, restarts, again = "restarting", self.seq // 45 + 1, 12 - self.seq % 45
                    error = "killed by signal 11 (segmentation fault) while running a batch of 8"
                elif model.behaviour == "dying" and worker["place"] == model.wanted - 1:
                    restarts, error = self.seq // 45 + 1, "killed by signal 11 (segmentation fault) while running a batch of 8"
                key = (worker["node"], worker["gpu"])
                gpu = gpus.setdefault(key, {"node": key[0], "gpu": key[1], "name": "NVIDIA H200", "memory_bytes": 0,
                                            "memory_total_bytes": 141 * GIB, "busy": [0] * missed})
                busy = worker["busy"][len(worker["busy"]) - missed:] if missed else []
                memory = 0 if state == "restarting" else round(worker["memory"])
                gpu["memory_bytes"] += memory
                gpu["busy"] = [min(100, round(one + other * worker["share"])) for one, other in zip(gpu["busy"], busy)]
                workers.append({
                    "id": worker["id"], "node": worker["node"], "gpu": worker["gpu"], "model": model.name,
                    "version": model.version, "state": state, "share": worker["share"], "memory_bytes": memory,
                    "memory_limit_bytes": 10 * GIB, "restarts": restarts, "again_in_s": again, "error": error, "busy": busy,
                })
            return {
                "schema": 1, "boot": f"mock-{self.generation}", "seq": self.seq,
                "now_ms": round((self.began + self.seq) * 1000),
                "cluster": {"name": "lab-west", "version": "0.2.0", "uptime_s": self.seq, "nodes": len({key[0] for key in gpus}) or 1},
                "models": [model.told(self.seq, since) for model in self.models],
                "workers": workers, "gpus": list(gpus.values()),
            }

    def run(self):
        while True:
            with self.lock:
                while self.began + self.seq + 1 <= time.time():
                    self.tick()
            time.sleep(0.05)


def handler(cluster):
    mode = {"now": "up"}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, kind, body):
            if "gzip" in self.headers.get("accept-encoding", "") and len(body) > 1000:
                body = gzip.compress(body, 1)
                packed = True
            else:
                packed = False
            self.send_response(status)
            self.send_header("content-type", kind)
            if packed:
                self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(body)))
            self.send_header("cache-control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            address = urlsplit(self.path)
            if address.path in ("/ui", "/ui/"):
                self.answer(200, "text/html; charset=utf-8", PAGE.read_bytes())
            elif address.path == "/ui/data":
                if mode["now"] == "down":
                    self.close_connection = True
                    self.connection.close()
                    return
                while mode["now"] == "hang":
                    time.sleep(0.1)
                try:
                    since = int(parse_qs(address.query).get("since", ["0"])[0])
                except ValueError:
                    self.answer(400, "application/json", b'{"error": "since is not a number"}')
                    return
                body = json.dumps(cluster.told(max(0, since)), separators=(",", ":")).encode()
                self.answer(200, "application/json", body)
            else:
                self.answer(404, "text/plain", b"not found")

        def do_POST(self):
            address = urlsplit(self.path)
            name = address.path.removeprefix("/mock/")
            if name in ("up", "down", "hang"):
                mode["now"] = name
            elif name == "restart":
                with cluster.lock:
                    cluster.begin(cluster.count, 30)
            elif name == "models":
                with cluster.lock:
                    cluster.begin(int(parse_qs(address.query)["n"][0]), cluster.history)
            else:
                self.answer(404, "text/plain", b"not found")
                return
            self.answer(200, "text/plain", b"ok")

    return Handler


def main():
    parser = argparse.ArgumentParser(description="Serve the dashboard with made-up numbers.")
    parser.add_argument("--port", type=int, default=8002)
    parser.add_argument("--models", type=int, default=len(CAST), help="how many models; 0 for an empty cluster")
    parser.add_argument("--history", type=int, default=KEEP, help="seconds that have already passed")
    options = parser.parse_args()
    cluster = Cluster(options.models, options.history)
    threading.Thread(target=cluster.run, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(cluster))
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_address[1]}/ui", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
