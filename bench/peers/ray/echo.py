"""Gives back the numbers it was sent, for Ray Serve: `python echo.py PORT`. Its JSON is its own."""

import sys
import time

import numpy
import ray
from ray import serve


@serve.deployment(num_replicas=1, max_ongoing_requests=100)
class Echo:
    async def __call__(self, request):
        numbers = numpy.array((await request.json())["input"], numpy.float32)
        return {"output": numbers.tolist()}


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Echo.bind(), route_prefix="/")
    while True:
        time.sleep(3600)
