"""Runs NVIDIA's perf_analyzer against a server and checks that it gets to its report.

    python perf_analyzer.py --program PATH --http HOST:PORT --grpc HOST:PORT --model echo

The program comes from the tritonclient 2.51 wheel. A run counts when it ends well, when its report says that every
request was answered and has the server's statistics, and when those statistics, as asked for before it began and after
it ended, say the same.

Its own reading of the statistics is not judged: it takes the first when its requests are already under way, so that
those answered by then are in no difference. What it read is in the results.
"""

import argparse
import json
import os
import re
import subprocess
import sys

from tritonclient import grpc, http

CONCURRENCY = ["--concurrency-range", "4"]
POISSON = ["--request-rate-range", "200", "--request-distribution", "poisson"]
# Name, protocol, options.
RUNS = [
    ("http concurrency", "http", CONCURRENCY),
    ("http poisson", "http", POISSON),
    ("grpc concurrency", "grpc", CONCURRENCY),
    ("grpc poisson", "grpc", POISSON),
    ("http batch of 4", "http", [*CONCURRENCY, "-b", "4"]),
    ("http JSON tensors", "http", [*CONCURRENCY, "--input-tensor-format", "json", "--output-tensor-format", "json"]),
    ("http shared memory", "http", [*CONCURRENCY, "--shared-memory", "system"]),
    ("grpc batch of 4", "grpc", [*CONCURRENCY, "-b", "4"]),
    ("grpc asynchronous", "grpc", [*CONCURRENCY, "--async"]),
    ("grpc stream", "grpc", [*CONCURRENCY, "--async", "--streaming"]),
    ("grpc shared memory", "grpc", [*CONCURRENCY, "--shared-memory", "system"]),
    ("grpc gzip", "grpc", [*CONCURRENCY, "--grpc-compression-algorithm", "gzip"]),
]
# Of the server's statistics in the report, which are there only when it could read them.
SERVER = re.compile(r"Inference count: (\d+)\n.*\n\s*Successful request count: (\d+)")


def counted(address, protocol, model):
    """How many requests of the model the server says it answered so far."""
    if protocol == "http":
        statistics = http.InferenceServerClient(address).get_inference_statistics(model)
    else:
        statistics = grpc.InferenceServerClient(address).get_inference_statistics(model, as_json=True)
    success = statistics["model_stats"][0]["inference_stats"]["success"]
    # Protobuf's JSON leaves out what is zero.
    return int(success.get("count", 0))


def run(program, libraries, address, protocol, model, options, requests, limit):
    """What it measured. An assertion says why a run does not count."""
    command = [program, "-m", model, "-u", address, "-i", protocol, "--request-count", str(requests), *options]
    environment = {**os.environ}
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries
    before = counted(address, protocol, model)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        raise AssertionError(f"no report after {limit} s; it said:\n{said}") from None
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"ended with {done.returncode}; it said:\n{said}"
    answered = re.search(r"Client:\s+Request count: (\d+)", said)
    assert answered and int(answered[1]) >= requests, f"no report of {requests} requests; it said:\n{said}"
    p99 = re.search(r"p99 latency: (\d+) usec", said)
    assert p99, f"no p99 in its report:\n{said}"
    server = SERVER.search(said)
    assert server, f"the server's statistics are not in its report:\n{said}"
    rise = counted(address, protocol, model) - before
    assert rise >= int(answered[1]), f"the server counted {rise} of {answered[1]} requests"
    return {"requests": int(answered[1]), "p99_us": int(p99[1]), "counted": rise, "reported": int(server[2])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="perf_analyzer")
    parser.add_argument("--libraries", help="folder with libcudart.so.12, for its sake only")
    parser.add_argument("--http", metavar="HOST:PORT", help="leave HTTP out by not naming it")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="leave gRPC out by not naming it")
    parser.add_argument("--model", default="echo")
    parser.add_argument("--requests", type=int, default=200, help="in each run [200]")
    parser.add_argument("--limit", type=float, default=60, help="seconds that a run may take [60]")
    parser.add_argument("--out", metavar="FILE", help="write the results here as JSON")
    arguments = parser.parse_args()

    addresses = {"http": arguments.http, "grpc": arguments.grpc}
    results, failed = {}, 0
    for name, protocol, options in RUNS:
        address = addresses[protocol]
        if not address:
            continue
        try:
            results[name] = run(
                arguments.program, arguments.libraries, address, protocol, arguments.model, options,
                arguments.requests, arguments.limit,
            )
            print(f"ok      {name}: p99 {results[name]['p99_us']} us")
        except AssertionError as error:
            failed += 1
            results[name] = {"failed": True}
            print(f"FAILED  {name}: {error}")
        sys.stdout.flush()
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    print(f"{len(results)} runs, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
