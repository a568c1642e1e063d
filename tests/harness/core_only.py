"""The complete run-time check of router guide C9: core-only code runs on the core only.

The guide marks such functions by their names (`_CT`) and relies on reviewers. The broker always checks where the cost
is not measurable (`Terminal.note` and the end of each step). In tests, `guard` wraps every public method of the classes
of the broker, of management and of the cluster: a thread of the broker may call one only while it runs the core.
Threads of tests may always call them, since without a core (`tests/broker`) they take its place.
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

FREE = {"Access", "Selector", "StoredContent", "HeldContent", "RewrittenContent", "LookedAtContent", "Feed", "Quotas"}
"""Classes that any thread may use: workers read content, the reader reads a feed, a selector is a pure function."""
FLOORS = (cairnmq.broker, cairnmq.management, cairnmq.cluster)
"""The packages whose classes belong to the core."""
FREE_METHODS = {
    "core_share", "due_s", "is_manager", "is_routed", "may_fit", "most_connections", "resumes", "denial_reason",
    "denial_reason_in",
}  # fmt: skip
"""Methods of core classes that any thread may call."""


class _CurrentThread(threading.local):
    """The right of the current thread to call core-only code: a thread of tests, or one that runs the core now.

    `may_call` is computed once per thread: in tests of a cluster, wrapped methods are called 50,000 times a second.
    """

    def __init__(self) -> None:
        self.may_call = not threading.current_thread().name.startswith("cairnmq-")


_current = _CurrentThread()


class OffTheCore(AssertionError):
    """A call of core-only code by a thread that does not run the core."""


def guard() -> int:
    """Check all calls from now on; return the number of wrapped methods."""
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

    setattr(Core, "run", marked)  # noqa: B010  # mypy treats it as a method
