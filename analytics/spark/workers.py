"""The Python workers of Spark: a clear error where this package is not installed, and cheaper turns between tasks.

A pickled object names its class by the module, and a Python without that fails in Spark's own words before anything of
ours runs. So what travels is bytes, and beside them, as code and not by name, the function that makes an object of
them.

Spark's daemon collects garbage after each task, and so goes each time through what importing has made, which stays:
some 40 ms of CPU, and half of what Python took for a query.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable
from typing import Any

Reduced = tuple[Callable[[bytes], Any], tuple[bytes]]
"""The result type of `__reduce__`."""


def guarded(of: object) -> Reduced:
    """For `__reduce__` of *of*, whose state is its `__dict__`."""
    return _load, (pickle.dumps((type(of), of.__dict__)),)


def _load(data: bytes) -> Any:
    """Needs nothing but the standard library, as it runs where there may be nothing else."""
    import pickle
    import socket
    import sys

    try:
        kind, state = pickle.loads(data)
    except ImportError as error:
        raise RuntimeError(
            f"worker on {socket.gethostname()}: its Python, {sys.executable}, can't read journals ({error}); install "
            "CairnMQ with its extra spark there, or have PYSPARK_PYTHON name a Python that has it"
        ) from None
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


_load.__module__ = "__main__"  # so that cloudpickle, which Spark uses, takes the code along

_settled = False


def settle() -> None:
    """To be called at the end of a task, when what is needed was imported. Does nothing anywhere but in a worker.

    Any thread; the garbage that there is goes before.
    """
    global _settled
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if _settled or spec is None or spec.name != "pyspark.daemon":
        return
    _settled = True
    gc.collect()
    gc.freeze()
