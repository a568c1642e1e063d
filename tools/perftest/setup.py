"""The setup role: queues that are there, and empty.

A CairnMQ broker is asked by its management. Another one makes its queues on first use, or by a command that is given;
what is on them is then taken off, as a receiver does.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from contextlib import closing
from typing import Any

from ...amqp.client.links import Receiver
from ...amqp.client.login import BrokerLogin
from ...amqp.client.loop import Loop
from ...amqp.client.management import Management, await_true
from ...amqp.client.wire import Wire
from ...base.errors import BrokerError
from .plan import OURS, Options

_COMMAND_S = 60.0
_DRAIN = 1000
_QUIET_S = 0.5
_CORRECT = "correct the command"


def set_up(where: BrokerLogin, options: Options, command: str) -> str:
    """Have all queues of a test be there and empty; how that was done. Raises `BrokerError`."""
    queues = dict.fromkeys(options.queue_names(), True) | dict.fromkeys(options.control_names(), False)
    for name, is_for_data in queues.items() if command else ():
        _run(command, name, options if is_for_data else Options())
    with closing(Wire(where, f"{options.base_name}-setup")) as wire:
        loop = Loop(wire)
        if wire.properties.get("product") == OURS and not command:
            _by_management(Management(wire, loop), options, queues)
            return "by management"
        durability = options.durability(wire.properties)
        _empty(wire, loop, {options.addresses.queue.format(name=name): durability if is_for_data else 0
                            for name, is_for_data in queues.items()})  # fmt: skip
        return "by command" if command else "on first use"


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
        raise BrokerError("--setup-command", f"does not end within {_COMMAND_S:.0f} s: {given}", _CORRECT) from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BrokerError("--setup-command", f"status {done.returncode} of {given}: {''.join(said[-1:])}", _CORRECT)


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


def _by_management(management: Management, options: Options, queues: dict[str, bool]) -> None:
    for name, is_for_data in queues.items():
        arguments: dict[str, Any] = {}
        if is_for_data and options.queue_max_count:
            arguments["max-messages"] = options.queue_max_count
        if is_for_data and options.queue_max_size:
            arguments["max-bytes"] = options.queue_max_size
        durable = is_for_data and (options.durable or options.queue_durable)
        about = {"type": "queue", "name": name}
        create = {"durable": durable, "arguments": arguments}
        status, reason, _ = management.ask({"operation": "CREATE", **about}, create)
        if status == 409:
            raise BrokerError(
                f"queue {name}", f"it exists with other arguments: {reason}", "use another --base-name, or delete it"
            )
        if status >= 400:
            raise BrokerError(f"queue {name}", f"{reason} ({status})")
        status, reason, _ = management.ask({"operation": "PURGE", **about}, {})
        if status >= 400:
            raise BrokerError(f"queue {name}", f"it can't be emptied: {reason} ({status})")
