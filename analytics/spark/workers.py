"""Cheaper turns of Spark's workers between tasks: imported modules are not checked again.

Spark's daemon collects garbage after each task, and so goes each time through what importing has made, which stays:
some 40 ms of CPU, and half of what Python took for a query.
"""

from __future__ import annotations

import gc
import sys

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
