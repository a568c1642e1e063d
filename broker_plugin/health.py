"""The liveness and readiness of the broker, as reported by /health and /ready. Any thread."""

from __future__ import annotations

from collections.abc import Callable

FAILED = "the broker has failed; see its log"
NOT_SERVING = "clients are refused while the broker starts or stops"


class Health:
    """The health of a broker: set by the code that starts it, read by the HTTP server."""

    def __init__(self) -> None:
        self.has_failed = False
        self._full: Callable[[], str] | None = None
        self._why_not: Callable[[], str] = str

    def serving(self, full: Callable[[], str], why_not: Callable[[], str] = str) -> None:
        """Set the state to serving: *full* returns why nothing can be stored, *why_not* why clients are not served."""
        self._full = full
        self._why_not = why_not

    def stopping(self) -> None:
        """Set the state to stopping: clients are not admitted any more."""
        self._full = None

    def why_not_alive(self) -> list[str]:
        return [FAILED] if self.has_failed else []

    def why_not_ready(self) -> list[str]:
        if self.has_failed:
            return [FAILED]
        if self._full is None:
            return [NOT_SERVING]
        if why_not := self._why_not():
            return [why_not]
        full = self._full()
        return [f"the store is full: {full}"] if full else []
