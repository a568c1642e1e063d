"""Arguments of queues and exchanges: RabbitMQ's names, and the broker's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

DEFAULT_TYPES = ("classic", "quorum")
"""Queue types that a durable queue stands for."""


class BadArgument(ValueError):
    """An argument that a queue can't have, with the reply code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def queue_address(name: str) -> str:
    """Return the address of the queue *name*, which never creates one."""
    return f"/queues/{quote(name, safe='')}"


def exchange_address(name: str, key: str = "") -> str:
    """Return the address of an exchange, with a routing key if one is given."""
    return f"/exchanges/{quote(name, safe='')}" + (f"/{quote(key, safe='')}" if key else "")


def _number(name: str, value: object, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadArgument(406, f"invalid arg '{name}': {value!r} is to be a number, at least {least}")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadArgument(406, f"invalid arg '{name}': {value!r} is to be a text")
    return value


def _overflow(name: str, value: object) -> str:
    policies = {"drop-head": "ring", "reject-publish": "reject"}
    policy = policies.get(_text(name, value))
    if policy is None:
        raise BadArgument(540, f"{name} {value!r} is not implemented; there are {', '.join(policies)}")
    return policy


def _priorities(name: str, value: object) -> bool:
    return _number(name, value) > 0


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadArgument(406, f"invalid arg '{name}': {value!r} is to be true or false")
    return value


_NATIVE: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "x-message-ttl": ("message-ttl-ms", _number),
    "x-max-length": ("max-messages", _number),
    "x-max-length-bytes": ("max-bytes", _number),
    "x-overflow": ("overflow", _overflow),
    "x-delivery-limit": ("max-deliveries", _number),
    "x-max-priority": ("priorities", _priorities),
    "x-single-active-consumer": ("single-active-consumer", _flag),
}
"""RabbitMQ's arguments: the broker's own name for each, and its value."""


def queue_arguments(queue: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a queue in the broker's own terms, with RabbitMQ's beside them. Raises `BadArgument`."""
    kind = asked.get("x-queue-type", DEFAULT_TYPES[0])
    if kind not in DEFAULT_TYPES:
        raise BadArgument(540, f"queue type {kind!r} is not implemented; there are {', '.join(DEFAULT_TYPES)}")
    found = dict(asked)
    for name, (own, convert) in _NATIVE.items():
        if name in asked:
            found[own] = convert(name, asked[name])
    if ("max-messages" in found or "max-bytes" in found) and "overflow" not in found:
        found["overflow"] = "ring"
    if "x-dead-letter-exchange" in asked:
        exchange = _text("x-dead-letter-exchange", asked["x-dead-letter-exchange"])
        key = _text("x-dead-letter-routing-key", asked.get("x-dead-letter-routing-key", ""))
        address = exchange_address(exchange, key) if exchange else queue_address(key or queue)
        found["dead-letter-address"] = found["expiry-address"] = address
    return found
