"""How far a step of training is, so that half a step counts as half.

Events are recorded after every layer on the way there and every gradient on the way back. How far each is into the step
was measured once, alone; at any moment, the last one that is done says how far the step is.
"""

import threading
import time

import torch


class Progress:
    def __init__(self, model):
        layers = [layer for layer in model.modules() if next(layer.children(), None) is None]
        for layer in layers:
            layer.register_forward_hook(lambda *_: self.mark())
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: self.mark())
        self.events, self.parts = [], []
        self.marked = self.steps = 0

    def mark(self):
        if self.marked == len(self.events):
            self.events.append(torch.cuda.Event(enable_timing=True))
        self.events[self.marked].record()
        self.marked += 1

    def step(self, work):
        """Does a step."""
        self.marked = 0
        work()
        # In this order: nobody is to see a step done twice.
        self.marked, self.steps = 0, self.steps + 1

    def calibrate(self, work):
        """Learns how far into a step each event is, by doing one."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.marked = 0
        start.record()
        work()
        end.record()
        end.synchronize()
        whole = start.elapsed_time(end)
        self.parts = [start.elapsed_time(event) / whole for event in self.events[: self.marked]]
        self.marked = 0

    def now(self):
        """Steps so far."""
        steps, marked = self.steps, min(self.marked, len(self.parts))
        least, most = 0, marked
        while least < most:
            middle = (least + most + 1) // 2
            if self.events[middle - 1].query():
                least = middle
            else:
                most = middle - 1
        return steps + (self.parts[least - 1] if least else 0)

    def at(self, when_ns, found):
        """Notes how far it is at a time to come."""

        def look():
            time.sleep(max(0, when_ns - time.monotonic_ns()) / 1e9)
            found.append((self.now(), time.monotonic_ns()))

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        return thread
