"""Models for Weft, written in Python.

A model is a class with a method ``predict``; it may derive from :class:`Model`, and need not::

    import numpy as np
    import weft

    class Double(weft.Model):
        inputs = [weft.Tensor("x", "FP32", [-1, 16])]
        outputs = [weft.Tensor("y", "FP32", [-1, 16])]

        def load(self):
            self.factor = np.float32(2)

        def predict(self, inputs):
            return {"y": inputs["x"] * self.factor}

Weights that every worker of a model needs are loaded once and held once, by :func:`shared` and :func:`shared_module`.

This package needs ``numpy`` and nothing else. It does not talk to the network: the node that starts a worker hands it
batches.
"""

try:
    from ._protocol import DataType, Tensor
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    import sys

    how = f"install it with `{sys.executable} -m pip install numpy`"
    raise ModuleNotFoundError(f"weft needs numpy, which is not there; {how}", name="numpy") from None
from ._weights import shared, shared_module

__all__ = ["DataType", "Model", "Tensor", "shared", "shared_module"]


class Model:
    """What a model may define. Everything but ``predict`` may be left out.

    ``inputs`` and ``outputs`` list the tensors, as :class:`Tensor` or as a tuple ``(name, datatype, shape)``. The
    first dimension is the batch and is written ``-1``, unless the model is deployed with ``max_batch = 0``.
    """

    #: What clients send. Without it the deployment's own list counts.
    inputs: list = []
    #: What they get. Without it the deployment's own list counts, or else what the first run answers.
    outputs: list = []
    #: The most requests in a batch, where that is less than the deployment allows.
    max_batch: "int | None" = None

    def load(self):
        """Called once, before anything is predicted. An exception here fails the start; its text is shown."""

    def predict(self, inputs):
        """Answers a batch.

        ``inputs`` maps names to arrays whose first dimension is the whole batch: requests lie one after the other.
        They are views of shared memory: read-only, and valid until this returns. Copy what must be kept.

        Return a dictionary from names to arrays, or one array where there is one output, or a list of arrays in the
        order of ``outputs``. The first dimension of each is the batch again.

        ``BF16`` has no type in numpy: such tensors are arrays of ``uint16`` with the same bits. ``BYTES`` are arrays
        of objects, each a ``bytes``; in outputs ``str`` will do too.

        An exception fails this batch and no other; its type and text are shown to the clients.
        """
        raise NotImplementedError("predict")
