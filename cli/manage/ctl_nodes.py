"""`cairnmq ctl queues`, `exchanges`, `bindings`, `templates` and `messages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from .ctl import Tools, arguments_option, ctl, deleting, group_of, with_tools
from .ctl_client import readable

queues = group_of("queue", "queues", "Queues.")
exchanges = group_of("exchange", "exchanges", "Exchanges.")
bindings = group_of("binding", "bindings", "Bindings, called exchange/queue/key, each in percent-encoding.")
templates = group_of("template", "templates", "Arguments of queues made on first use, by patterns of their names.")
deleting(exchanges, "exchange", text="Take it away, with its bindings.")
deleting(bindings, "binding")
deleting(templates, "template", text="Forget it. Queues that were made with it stay.")
_TRANSIENT = click.option("--transient", is_flag=True, help="It does not outlast the broker.")
MESSAGE_COLUMNS = ("position", "id", "size", "redelivered", "properties", "application-properties", "body")


@queues.command("create")
@click.argument("name")
@_TRANSIENT
@arguments_option
@with_tools
def create_queue(tools: Tools, name: str, transient: bool, arguments: Mapping[str, Any]) -> None:
    """Make a queue; its arguments are its policy, like max-messages=1000."""
    tools.client.ask("CREATE", "queue", name, {"durable": not transient, "arguments": arguments})
    tools.printer.done(f"queue {name} is there")


@queues.command("set")
@click.argument("name")
@arguments_option
@click.option("--unset", multiple=True, metavar="KEY", help="Take that argument away.")
@with_tools
def set_arguments(tools: Tools, name: str, arguments: Mapping[str, Any], unset: tuple[str, ...]) -> None:
    """Change some of a queue's arguments, like max-messages=1000 or paused=true."""
    changes = {**arguments, **dict.fromkeys(unset)}
    found = tools.client.ask("UPDATE", "queue", name, {"arguments": changes})
    tools.printer.done(f"queue {name} is changed", found)


@queues.command("delete")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only without consumers.")
@click.option("--if-empty", is_flag=True, help="Only without messages.")
@with_tools
def delete_queue(tools: Tools, name: str, if_unused: bool, if_empty: bool) -> None:
    """Take a queue away, with all that is on it."""
    tools.client.ask("DELETE", "queue", name, {"if-unused": if_unused, "if-empty": if_empty})
    tools.printer.done(f"queue {name} is gone")


@queues.command("purge")
@click.argument("name")
@with_tools
def purge(tools: Tools, name: str) -> None:
    """Take all messages off a queue but those that consumers have."""
    found = tools.client.ask("PURGE", "queue", name)
    tools.printer.done(f"{found['purged']} messages are gone from queue {name}", found)


@queues.command("move")
@click.argument("name")
@click.argument("to")
@click.option("--count", type=click.IntRange(0), help="How many, from the first one on; all, by default.")
@with_tools
def move(tools: Tools, name: str, to: str, count: int | None) -> None:
    """Move a queue's messages to an address: another queue, or an exchange with a key."""
    found = tools.client.ask("MOVE", "queue", name, {"to": to} if count is None else {"to": to, "count": count})
    tools.printer.done(f"{found['moved']} messages went from queue {name} to {to}", found)


@ctl.group("messages")
def messages() -> None:
    """Messages on queues."""


@messages.command("list")
@click.argument("queue")
@click.option("--count", default=20, show_default=True, type=click.IntRange(1), help="How many, at most.")
@click.option("--body-bytes", default=64, show_default=True, type=click.IntRange(0, 65536), help="How much of a body.")
@with_tools
def list_messages(tools: Tools, queue: str, count: int, body_bytes: int) -> None:
    """Look at a queue's first messages, and take none."""
    found = tools.client.peek(queue, count, body_bytes)
    tools.printer.rows(found if tools.printer.as_json else map(readable, found), MESSAGE_COLUMNS)


queues.add_command(list_messages, "peek")
messages.add_command(move, "move")


@exchanges.command("create")
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, help="direct, fanout, topic or headers.")
@_TRANSIENT
@arguments_option
@with_tools
def create_exchange(tools: Tools, name: str, kind: str, transient: bool, arguments: Mapping[str, Any]) -> None:
    """Make an exchange."""
    body = {"exchange-type": kind, "durable": not transient, "arguments": arguments}
    tools.client.ask("CREATE", "exchange", name, body)
    tools.printer.done(f"exchange {name} is there")


@bindings.command("create")
@click.argument("exchange")
@click.argument("queue")
@click.argument("key", default="")
@arguments_option
@with_tools
def bind(tools: Tools, exchange: str, queue: str, key: str, arguments: Mapping[str, Any]) -> None:
    """Have a queue get what an exchange has for a key."""
    body = {"exchange": exchange, "queue": queue, "key": key, "arguments": arguments}
    found = tools.client.ask("CREATE", "binding", None, body)
    tools.printer.done(f"binding {found['name']} is there")


exchanges.add_command(bind, "bind")


@exchanges.command("unbind")
@click.argument("exchange")
@click.argument("queue")
@click.argument("key", default="")
@with_tools
def unbind(tools: Tools, exchange: str, queue: str, key: str) -> None:
    """Take a binding away."""
    name = "/".join(quote(part, safe="") for part in (exchange, queue, key))
    tools.client.ask("DELETE", "binding", name)
    tools.printer.done(f"binding {name} is gone")


@templates.command("create")
@click.argument("pattern")
@arguments_option
@with_tools
def create_template(tools: Tools, pattern: str, arguments: Mapping[str, Any]) -> None:
    """Have queues that fit a pattern made with these arguments."""
    tools.client.ask("CREATE", "template", pattern, {"arguments": arguments})
    tools.printer.done(f"template {pattern} is there")


@templates.command("update")
@click.argument("pattern")
@arguments_option
@with_tools
def update_template(tools: Tools, pattern: str, arguments: Mapping[str, Any]) -> None:
    """Other arguments, for queues that are made from now on."""
    tools.client.ask("UPDATE", "template", pattern, {"arguments": arguments})
    tools.printer.done(f"template {pattern} is changed")
