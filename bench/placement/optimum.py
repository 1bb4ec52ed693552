"""How few GPUs the busiest moment of a trace of instances needs, if everything may be placed anew at that moment.

    pip install ortools
    python3 bench/placement/optimum.py instances-100.txt --gpus 71,72,73 --seconds 300 -o placement-optimum.json

The rules are those of `weft sim placement`: GPUs of 40 GB in nodes of eight, requests within 1, limits within 1.5, memory
within memory, an LLM over any GPUs of one node. Training parts of more than half of a GPU have one each; which of them are
in a node together is given, by what they leave, so another arrangement may need fewer. Layers are in tenths of a GB.

The solver leaves out as few GB of layers as it can. None: so many GPUs are enough. Where it shows that some must be left
out, they are not, for this arrangement; else it is unknown.
"""

import argparse
import ast
import json
import os
import platform
import sys
import time

try:
    import ortools
    from ortools.sat.python import cp_model
except ImportError:
    sys.exit("OR-Tools is needed: pip install ortools")

MEMORY = 40
NODE = 8
REQUESTS, LIMITS = 1000, 1500
GRAINS = 10  # of a GB
SHARES = 1000  # what shares are counted in, so that those of a grain are whole
WORKERS = 8  # that search in different ways, however many cores there are


def busiest(path):
    """The instances that run when their sums are the most."""
    running, most, found = {}, -1.0, []
    try:
        with open(path, encoding="utf-8") as lines:
            events = [ast.literal_eval(line) for line in lines if line.strip()]
    except (OSError, SyntaxError, ValueError) as error:
        sys.exit(f"{path} is no trace of instances: {error}; give one of those that `weft sim placement` reads")
    for event in events:
        instance = event["Instance"]
        if event["Action"] == "start":
            running[instance["service_name"]] = instance
        else:
            running.pop(instance["service_name"], None)
        gpus = sum(sum(one["memory"]) for one in running.values()) / MEMORY
        if gpus > most:
            most, found = gpus, list(running.values())
    return most, found


def parts(instances):
    """Training parts, small workers and LLMs: request, limit, memory of each."""
    training, small, llms = [], [], []
    kinds = {"training": training, "inference": small, "llm-inference": llms}
    for one in instances:
        need = (round(one["sm_requests"] * REQUESTS), round(one["sm_limits"] * REQUESTS))
        kinds[one["type"]].extend((*need, memory) for memory in one["memory"])
    if any(memory <= MEMORY // 2 for _, _, memory in training):
        sys.exit("two training parts would fit on one GPU: this script gives each its own")
    return training, small, llms


def rooms(training, gpus):
    """What training leaves on each GPU, and its node. GPUs without training are spread over all nodes."""
    nodes = -(-gpus // NODE)
    sizes = [min(NODE, gpus - NODE * node) for node in range(nodes)]
    left = [[] for _ in range(nodes)]
    for free in range(gpus - len(training)):
        left[free % nodes].append((REQUESTS, LIMITS, MEMORY))
    order = sorted(training, key=lambda part: part[2])
    for node, size in enumerate(sizes):
        while len(left[node]) < size:
            request, limit, memory = order.pop(0)
            left[node].append((REQUESTS - request, LIMITS - limit, MEMORY - memory))
    return [(node, room) for node, all_rooms in enumerate(left) for room in all_rooms]


def solve(training, small, llms, gpus, seconds):
    """How much does not fit, and how long that took to find out."""
    model = cp_model.CpModel()
    free = rooms(training, gpus)
    taken = [[] for _ in free]  # (variable, request, limit, memory), each in shares or grains of one
    for request, limit, memory in small:
        places = []
        for index, (_, room) in enumerate(free):
            if request <= room[0] and limit <= room[1] and memory <= room[2]:
                place = model.new_bool_var("")
                places.append(place)
                taken[index].append((place, request * SHARES, limit * SHARES, memory * GRAINS))
        model.add_exactly_one(places)
    left_out = []
    for request, limit, memory in llms:
        grains = memory * GRAINS
        # Rounded down, so that nothing is called impossible that is not.
        shares = (request * SHARES // grains, limit * SHARES // grains)
        nodes = [model.new_bool_var("") for _ in range(free[-1][0] + 1)]
        model.add_exactly_one(nodes)
        everywhere = []
        for node, here in enumerate(nodes):
            layers = []
            for index, (at, room) in enumerate(free):
                if at == node and room[2] > 0:
                    part = model.new_int_var(0, min(memory, room[2]) * GRAINS, "")
                    layers.append(part)
                    taken[index].append((part, *shares, 1))
            model.add(sum(layers) == 0).only_enforce_if(~here)
            everywhere += layers
        left_out.append(grains - sum(everywhere))
        model.add(left_out[-1] >= 0)
    for (_, room), all_taken in zip(free, taken):
        for which, capacity in enumerate((room[0] * SHARES, room[1] * SHARES, room[2] * GRAINS)):
            model.add(sum(one[0] * one[1 + which] for one in all_taken) <= capacity)
    model.minimize(sum(left_out))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = WORKERS
    began = time.monotonic()
    found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return {
        "gpus": gpus,
        "left_out_gb": solver.objective_value / GRAINS if found else None,
        "left_out_at_least_gb": solver.best_objective_bound / GRAINS,
        "seconds": round(time.monotonic() - began, 1),
    }


def processor():
    """What it calls itself."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("trace")
    arguments.add_argument("--gpus", required=True, help="how many to try, as in 71,72,73")
    arguments.add_argument("--seconds", type=float, default=300, help="for each of them")
    arguments.add_argument("-o", "--output", help="write it there as JSON")
    options = arguments.parse_args()
    most, instances = busiest(options.trace)
    training, small, llms = parts(instances)
    tried = []
    for gpus in map(int, options.gpus.split(",")):
        if gpus < len(training):
            sys.exit(f"{gpus} GPUs are too few: {len(training)} training parts have one each")
        tried.append(solve(training, small, llms, gpus, options.seconds))
        print(tried[-1], flush=True)
    found = {
        "trace": options.trace.rsplit("/", 1)[-1],
        "memory_of_gpus": most,
        "parts": {"training": len(training), "small": len(small), "llms": len(llms)},
        "seconds_each": options.seconds,
        "tried": tried,
        "solver": f"OR-Tools {ortools.__version__}, CP-SAT",
        "machine": f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    if options.output:
        with open(options.output, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=2)
            out.write("\n")


if __name__ == "__main__":
    main()
