"""Errors of the API: an HTTP status, a condition, and one line of text."""

from __future__ import annotations

NOT_FOUND = "amqp:not-found"
INVALID = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"
DENIED = "amqp:unauthorized-access"
CONFLICT = "amqp:precondition-failed"
NOT_IMPLEMENTED = "amqp:not-implemented"
LIMIT = "amqp:resource-limit-exceeded"
INTERNAL = "amqp:internal-error"
UNAVAILABLE = "cairnmq:broker-unavailable"
LOGIN_REQUIRED = "cairnmq:login-required"
ANONYMOUS_LOGIN = "cairnmq:anonymous-login"
FORGED = "cairnmq:request-refused"

_CONDITIONS = {400: INVALID, 403: DENIED, 404: NOT_FOUND, 409: CONFLICT, 501: NOT_IMPLEMENTED, 507: LIMIT}


class ApiError(Exception):
    """A request that is not fulfilled."""

    def __init__(self, status: int, condition: str, text: str, retry_after_s: int = 0, *, field: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.condition = condition
        self.text = text
        self.retry_after_s = retry_after_s
        """Seconds after which a client may try again; 0: not stated."""
        self.field = field
        """The query parameter, or the key of the body, that is invalid; empty if the error is not about one."""


def refusal(status: int, description: str) -> ApiError:
    """Return the error for a management response with this *status*."""
    return ApiError(status, _CONDITIONS.get(status, UNAVAILABLE if status == 503 else INTERNAL), description)
