"""The thorough check of router guide C9: core-only code runs on the core only.

The guide marks such functions by their names (`_CT`) and trusts the reader. Here a run-time check does it: always on
where it costs nothing that can be measured (`Terminal.note` and the end of each step), and thorough in tests: `guard`
wraps every public method of the classes of the broker, of management and of the cluster. A thread of the broker's that
calls one must play the core; threads of tests may, since where there is no core (`tests/broker`) they are it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import cairnmq.broker
import cairnmq.cluster
import cairnmq.management
from cairnmq.router.kernel.core import Core

FREE = {"Access", "Selector", "StoredContent", "HeldContent", "RedeliveredContent", "LookedAtContent", "Feed", "Quotas"}
"""What any thread may use: content is read by workers, a feed by the reader, a selector is a pure function."""
FLOORS = (cairnmq.broker, cairnmq.management, cairnmq.cluster)
"""Whose classes are the core's."""
FREE_METHODS = {
    "core_share", "due_s", "is_manager", "is_routed", "may_fit", "most_connections", "resumes", "denial_reason",
    "denial_reason_in",
}  # fmt: skip
"""What any thread may ask a class of the core's."""


class _CurrentThread(threading.local):
    """Return True on a thread of tests, or on one that runs the core now: these may call core-only code.

    It is computed once for each thread: in tests of a cluster, the wrapped methods are called 50,000 times a second.
    """

    def __init__(self) -> None:
        self.may_call = not threading.current_thread().name.startswith("cairnmq-")


_current = _CurrentThread()


class OffTheCore(AssertionError):
    """Core-only code was called by a thread that does not play the core."""


def guard() -> int:
    """Check all of it from now on; how many methods that are."""
    _mark_steps()
    wrapped = 0
    for floor in FLOORS:
        for module_info in pkgutil.walk_packages(floor.__path__, f"{floor.__name__}."):
            module = importlib.import_module(module_info.name)
            for kind in list(vars(module).values()):
                if isinstance(kind, type) and kind.__module__ == module.__name__ and _is_core_only(kind):
                    wrapped += _wrap(kind)
    return wrapped


def _is_core_only(kind: type) -> bool:
    floors = tuple(floor.__name__ for floor in FLOORS)
    plain = kind.__bases__ == (object,) or all(base.__module__.startswith(floors) for base in kind.__bases__)
    return plain and kind.__name__ not in FREE and not getattr(kind, "_is_protocol", False)


def _wrap(kind: type) -> int:
    wrapped = 0
    for name, found in list(vars(kind).items()):
        if isinstance(found, FunctionType) and not name.startswith("_") and name not in FREE_METHODS:
            setattr(kind, name, _checked(found))
            wrapped += 1
    return wrapped


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not _current.may_call:
            raise OffTheCore(f"{function.__qualname__} was called by {threading.current_thread().name}")
        return function(*args, **options)

    return call


def _mark_steps() -> None:
    run = Core.run

    def marked(core: Core) -> bool:
        before, _current.may_call = _current.may_call, True
        try:
            return run(core)
        finally:
            _current.may_call = before

    setattr(Core, "run", marked)  # noqa: B010  # mypy knows it for a method
