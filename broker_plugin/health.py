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
        self._denial_reason: Callable[[], str] = str

    def serving(self, full: Callable[[], str], denial_reason: Callable[[], str] = str) -> None:
        """Set the state to serving; *full* and *denial_reason* return why nothing is stored or no client is served."""
        self._full = full
        self._denial_reason = denial_reason

    def stopping(self) -> None:
        """Set the state to stopping: clients are not admitted any more."""
        self._full = None

    def liveness_failures(self) -> list[str]:
        return [FAILED] if self.has_failed else []

    def readiness_failures(self) -> list[str]:
        if self.has_failed:
            return [FAILED]
        if self._full is None:
            return [NOT_SERVING]
        if denial_reason := self._denial_reason():
            return [denial_reason]
        full = self._full()
        return [f"the store is full: {full}"] if full else []
