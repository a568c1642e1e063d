"""`cairnmq ctl queues`, `exchanges`, `bindings`, `templates` and `messages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import click

from ...base.texts import counted
from ..options.confirmation import destructive, dry_run_option
from .completion import NameOf
from .ctl import Tools, arguments_option, deleting, group_of, with_tools

queues = group_of("queue", "queues", "Manage queues.", "orders")
exchanges = group_of("exchange", "exchanges", "Manage exchanges.", "amq.topic")
group_of(
    "binding", "bindings", "Show bindings.\n\nNames are EXCHANGE/QUEUE/KEY, percent-encoded. `cairnmq ctl exchanges "
    "bind` and `unbind` create and delete bindings.", "amq.topic/invoices/invoice.%23",
)  # fmt: skip
templates = group_of(
    "template", "templates", "Manage queue arguments by name pattern.\n\nThey apply to queues created on first use.",
    '"orders.*"',
)  # fmt: skip
deleting(exchanges, "exchange", "Delete an exchange and its bindings.", "news")
deleting(templates, "template", "Delete a template. Existing queues do not change.", '"orders.*"')
_TRANSIENT = click.option("--transient", is_flag=True, help="Don't keep it over a restart of the broker.")
MESSAGE_COLUMNS = ("position", "id", "size", "body", "properties", "application-properties", "redelivered", "due")


@queues.command("create", example="ctl queues create orders -a max-messages=1000")
@click.argument("name")
@_TRANSIENT
@arguments_option
@with_tools
def create_queue(tools: Tools, name: str, transient: bool, arguments: Mapping[str, Any]) -> None:
    """Create a queue."""
    tools.client.ask("CREATE", "queue", name, {"durable": not transient, "arguments": arguments})
    tools.printer.done(f"created queue {name}")


@queues.command("set", example="ctl queues set orders -a paused=true --unset max-messages")
@click.argument("name", type=NameOf("queue"))
@arguments_option
@click.option("--unset", multiple=True, metavar="KEY", help="Remove this argument.")
@dry_run_option
@with_tools
def set_arguments(tools: Tools, name: str, arguments: Mapping[str, Any], unset: tuple[str, ...]) -> None:
    """Change arguments of a queue.

    A dry run shows the present values of these arguments.
    """
    changes = {**arguments, **dict.fromkeys(unset)}
    if tools.is_dry_run:
        present = tools.client.ask("READ", "queue", name)["arguments"]
        tools.printer.done(f"would change queue {name}: {_differences(present, changes)}", {"arguments": changes})
        return
    found = tools.client.ask("UPDATE", "queue", name, {"arguments": changes})
    tools.printer.done(f"changed queue {name}", found)


def _differences(present: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """Return the changes of arguments as text; None stands for an absent argument."""
    found = [
        f"{key} from {present.get(key, 'unset')} to {'unset' if value is None else value}"
        for key, value in changes.items() if present.get(key) != value
    ]  # fmt: skip
    return ", ".join(found) or "nothing"


def _messages(tools: Tools, queue: str) -> int:
    return int(tools.client.ask("READ", "queue", queue)["messages"])


@queues.command("delete", example="ctl queues delete orders --if-empty")
@click.argument("name", type=NameOf("queue"))
@click.option("--if-unused", is_flag=True, help="Delete it only if it has no consumers.")
@click.option("--if-empty", is_flag=True, help="Delete it only if it has no messages.")
@destructive
@with_tools
def delete_queue(tools: Tools, name: str, if_unused: bool, if_empty: bool) -> None:
    """Delete a queue and its messages."""
    if _is_stopped(tools, lambda messages: f"delete queue {name} with {messages}", name):
        return
    tools.client.ask("DELETE", "queue", name, {"if-unused": if_unused, "if-empty": if_empty})
    tools.printer.done(f"deleted queue {name}")


def _is_stopped(tools: Tools, change: Callable[[str], str], queue: str) -> bool:
    """Confirm *change* of the messages of *queue*, by their number; true if a dry run ends with that."""
    if tools.is_dry_run:
        count = _messages(tools, queue)
        tools.printer.done(f"would {change(counted(count, 'message'))}", {"messages": count})
    elif not tools.is_sure:
        tools.confirm(change(counted(_messages(tools, queue), "message")))
    return tools.is_dry_run


@queues.command("purge", example="ctl queues purge orders --dry-run")
@click.argument("name", type=NameOf("queue"))
@destructive
@with_tools
def purge(tools: Tools, name: str) -> None:
    """Remove the messages of a queue.

    Messages that consumers have acquired stay.
    """
    if _is_stopped(tools, lambda messages: f"purge {messages} from queue {name}", name):
        return
    found = tools.client.ask("PURGE", "queue", name)
    tools.printer.done(f"purged {counted(found['purged'], 'message')} from queue {name}", found)


@queues.command("move", example="ctl queues move orders.dead orders --count 10")
@click.argument("name", type=NameOf("queue"))
@click.argument("to", type=NameOf("queue"))
@click.option(
    "--count", type=click.IntRange(0, 10**18), help="Messages to move, the oldest first.  [default: all]"
)
@click.option("--create", "may_create", is_flag=True, help="Let the broker create TO, if --auto-create permits.")
@dry_run_option
@with_tools
def move(tools: Tools, name: str, to: str, count: int | None, may_create: bool) -> None:
    """Move messages to another address.

    TO is a queue, or an exchange with a key. It must exist, unless --create is given and the broker creates queues of
    that name on first use (its option --auto-create).
    """
    asked: dict[str, Any] = {"to": to, "create": may_create}
    if tools.is_dry_run:
        if not may_create:
            tools.client.ask("MOVE", "queue", name, {**asked, "count": 0})  # checks the target and the rights
        most = _messages(tools, name) if count is None else min(count, _messages(tools, name))
        tools.printer.done(f"would move {counted(most, 'message')} from queue {name} to {to}", {"messages": most})
        return
    found = tools.client.ask("MOVE", "queue", name, asked if count is None else {**asked, "count": count})
    tools.printer.done(f"moved {counted(found['moved'], 'message')} from queue {name} to {to}", found)


@queues.command("peek", example="ctl queues peek orders --count 5")
@click.argument("queue", type=NameOf("queue"))
@click.option("--count", default=20, show_default=True, type=click.IntRange(1), help="Number of messages.")
@click.option("--body-bytes", default=64, show_default=True, type=click.IntRange(0, 65536), help="Bytes of each body.")
@with_tools
def peek(tools: Tools, queue: str, count: int, body_bytes: int) -> None:
    """Browse the first messages of a queue."""
    from .ctl_client import readable

    found = tools.client.peek(queue, count, body_bytes)
    tools.printer.rows(found if tools.printer.as_json else map(readable, found), MESSAGE_COLUMNS)


@exchanges.command("create", example="ctl exchanges create news --type topic")
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, help="direct, fanout, topic or headers.")
@_TRANSIENT
@arguments_option
@with_tools
def create_exchange(tools: Tools, name: str, kind: str, transient: bool, arguments: Mapping[str, Any]) -> None:
    """Create an exchange."""
    body = {"exchange-type": kind, "durable": not transient, "arguments": arguments}
    tools.client.ask("CREATE", "exchange", name, body)
    tools.printer.done(f"created exchange {name}")


@exchanges.command("bind", example='ctl exchanges bind amq.topic invoices "invoice.#"')
@click.argument("exchange", type=NameOf("exchange"))
@click.argument("queue", type=NameOf("queue"))
@click.argument("key", default="")
@arguments_option
@with_tools
def bind(tools: Tools, exchange: str, queue: str, key: str, arguments: Mapping[str, Any]) -> None:
    """Bind a queue to an exchange."""
    body = {"exchange": exchange, "queue": queue, "key": key, "arguments": arguments}
    found = tools.client.ask("CREATE", "binding", None, body)
    key_words = f" with key {key}" if key else ""
    tools.printer.done(f"bound {queue} to {exchange}{key_words}", found)


@exchanges.command("unbind", example='ctl exchanges unbind amq.topic invoices "invoice.#"')
@click.argument("exchange", type=NameOf("exchange"))
@click.argument("queue", type=NameOf("queue"))
@click.argument("key", default="")
@destructive
@with_tools
def unbind(tools: Tools, exchange: str, queue: str, key: str) -> None:
    """Delete a binding."""
    name = "/".join(quote(part, safe="") for part in (exchange, queue, key))
    tools.change(f"delete binding {name}", f"deleted binding {name}", "DELETE", "binding", name)


@templates.command("create", example='ctl templates create "orders.*" -a max-messages=1000')
@click.argument("pattern")
@arguments_option
@with_tools
def create_template(tools: Tools, pattern: str, arguments: Mapping[str, Any]) -> None:
    """Set arguments of queues by name pattern."""
    tools.client.ask("CREATE", "template", pattern, {"arguments": arguments})
    tools.printer.done(f"created template {pattern}")


@templates.command("update", example='ctl templates update "orders.*" -a max-messages=5000')
@click.argument("pattern", type=NameOf("template"))
@arguments_option
@dry_run_option
@with_tools
def update_template(tools: Tools, pattern: str, arguments: Mapping[str, Any]) -> None:
    """Replace the arguments for new queues."""
    if tools.is_dry_run:
        present = tools.client.ask("READ", "template", pattern)["arguments"]
        changes = {**dict.fromkeys(present), **arguments}
        text = f"would change template {pattern}: {_differences(present, changes)}"
        tools.printer.done(text, {"arguments": arguments})
        return
    tools.client.ask("UPDATE", "template", pattern, {"arguments": arguments})
    tools.printer.done(f"changed template {pattern}")
