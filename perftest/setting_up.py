"""The setup role: queues that are there, and empty.

A CairnMQ broker is asked by its management. Another one makes its queues on first use, or by a command that is given;
what is on them is then taken off, as a receiver does.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from typing import Any

from ..amqp import encode, sections
from ..amqp.codec import Malformed
from . import performatives as p
from .entering import Where
from .errors import BrokerError
from .links import Receiver, Sender
from .loop import Loop
from .plan import OURS, Options
from .wire import Wire

_COMMAND_S = 60.0
_DRAIN = 1000
_QUIET_S = 0.5


def set_up(where: Where, options: Options, command: str) -> str:
    """Have all queues of a test be there and empty; how that was done. Raises `BrokerError`."""
    queues = dict.fromkeys(options.queue_names(), True) | dict.fromkeys(options.control_names(), False)
    for name, is_for_data in queues.items() if command else ():
        _run(command, name, options if is_for_data else Options())
    wire = Wire(where, f"{options.base_name}-setup")
    try:
        if wire.properties.get("product") == OURS and not command:
            _by_management(wire, options, queues)
            return "by management"
        loop = Loop()
        loop.add(wire, [])
        durability = options.durability(wire.properties)
        _empty(wire, loop, {options.addresses.queue.format(name=name): durability if is_for_data else 0
                            for name, is_for_data in queues.items()})  # fmt: skip
        return "by command" if command else "on first use"
    finally:
        wire.close()


def _run(command: str, name: str, options: Options) -> None:
    given = command.format(
        name=shlex.quote(name),
        durable="true" if options.durable or options.queue_durable else "false",
        max_count=options.queue_max_count,
        max_size=options.queue_max_size,
    )
    try:
        done = subprocess.run(given, shell=True, capture_output=True, text=True, timeout=_COMMAND_S)
    except subprocess.TimeoutExpired:
        raise BrokerError("--setup-command", f"it does not end within {_COMMAND_S:.0f} s: {given}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BrokerError("--setup-command", f"status {done.returncode} of {given}: {said[-1] if said else ''}")


def await_true(wire: Wire, loop: Loop, what: str, is_true: Callable[[], bool]) -> None:
    """Raises `BrokerError` if it does not come true in time."""
    end_s = time.monotonic() + wire.where.timeout_s
    while not is_true():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise BrokerError(wire.where.url, f"no {what} within {wire.where.timeout_s:g} s")
        loop.turn(min(100, int(left_s * 1000) + 1))


def _empty(wire: Wire, loop: Loop, addresses: dict[str, int]) -> None:
    """Take off all messages of these queues: until nothing comes any more. (Not every broker can be asked to drain.)"""
    came: list[bytes] = []
    links = [Receiver(wire, f"empty-{address}-{time.monotonic_ns()}", address, came.append) for address in addresses]
    for link in links:
        link.durability = addresses[link.address]
        wire.attach(link)
    await_true(wire, loop, f"links to {', '.join(addresses)}", lambda: all(link.attached for link in links))
    while True:
        before = len(came)
        for link in links:
            link.allow(_DRAIN - link.credit)
        end_s = time.monotonic() + _QUIET_S
        while (left_s := end_s - time.monotonic()) > 0:
            loop.turn(int(left_s * 1000) + 1)
        if len(came) == before:
            break
    for link in links:
        wire.detach(link)


class Management:
    """Requests to a CairnMQ broker's management, one at a time."""

    def __init__(self, wire: Wire, loop: Loop) -> None:
        self._wire, self._loop = wire, loop
        self._answers: list[bytes] = []
        name = f"setup-{time.monotonic_ns()}"
        self._requests = Sender(wire, f"{name}-requests", "$management")
        self._replies = Receiver(wire, name, "$management", self._answers.append, reply_to=True)
        wire.attach(self._replies)
        wire.attach(self._requests)
        await_true(wire, loop, "management", lambda: self._requests.attached and self._replies.attached)
        self._replies.allow(_DRAIN)

    def ask(self, operation: str, type: str, name: str, body: dict[str, Any]) -> tuple[int, str]:
        """The status of the answer, and what it says of that."""
        entries = {"operation": operation, "type": type, "name": name}
        properties = encode.described(0x73, encode.value([None, None, None, None, self._replies.name]))
        message = properties + sections.application_properties_section(entries)
        outcome: list[Any] = []
        self._requests.post(message + encode.described(0x77, encode.value(body)), outcome.append)
        await_true(self._wire, self._loop, "answer of management", lambda: bool(self._answers or _refused(outcome)))
        if not self._answers:
            raise BrokerError("$management", _refused(outcome) or "the request was refused")
        answer = self._answers.pop()
        try:
            found = sections.application_properties(answer, sections.find(answer, 0x74))
        except Malformed as error:
            raise BrokerError("$management", f"its answer can't be read: {error}") from error
        return int(found["statusCode"]), str(found["statusDescription"])


def _refused(outcome: list[Any]) -> str:
    if not outcome:
        return ""
    code, fields = p.state_of(outcome[0])
    return "" if code == p.ACCEPTED else p.error_text(fields[0] if fields else None) or "the request was refused"


def _by_management(wire: Wire, options: Options, queues: dict[str, bool]) -> None:
    loop = Loop()
    loop.add(wire, [])
    management = Management(wire, loop)
    for name, is_for_data in queues.items():
        arguments: dict[str, Any] = {}
        if is_for_data and options.queue_max_count:
            arguments["max-messages"] = options.queue_max_count
        if is_for_data and options.queue_max_size:
            arguments["max-bytes"] = options.queue_max_size
        durable = is_for_data and (options.durable or options.queue_durable)
        status, why = management.ask("CREATE", "queue", name, {"durable": durable, "arguments": arguments})
        if status == 409:
            raise BrokerError(
                f"queue {name}", f"it is there, and otherwise: {why}", "use another --base-name, or delete it"
            )
        if status >= 400:
            raise BrokerError(f"queue {name}", f"{why} ({status})")
        status, why = management.ask("PURGE", "queue", name, {})
        if status >= 400:
            raise BrokerError(f"queue {name}", f"it can't be emptied: {why} ({status})")
