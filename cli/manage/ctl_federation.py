"""`cairnmq ctl federated-queues` and `downstreams`."""

from __future__ import annotations

from typing import Any

import click

from ...base.texts import counted
from ..options.confirmation import destructive
from .ctl import Tools, arguments_option, deleting, group_of, with_tools

federated_queues = group_of("federated-queue", "federated-queues", "Manage federated queues (downstream).", "orders")
downstreams = group_of("downstream", "downstreams", "Show downstream sites of queues.", "site-b")

deleting(federated_queues, "federated-queue", "Delete a federated queue and its messages.", "orders")


@federated_queues.command("create", example="ctl federated-queues create orders hub")
@click.argument("name")
@click.argument("connector")
@click.option("--source", default="", help="Queue at the other site, if its name differs.")
@arguments_option
@with_tools
def create_federated_queue(tools: Tools, name: str, connector: str, source: str, arguments: dict[str, Any]) -> None:
    """Copy a queue of another site.

    NAME follows the queue of that name at the broker of CONNECTOR. The arguments apply when NAME is promoted.
    """
    body = {"connector": connector, "source": source or name, "arguments": arguments}
    tools.client.ask("CREATE", "federated-queue", name, body)
    tools.printer.done(f"created federated queue {name} of {source or name} over {connector}")


@federated_queues.command("promote", example="ctl federated-queues promote orders")
@click.argument("name")
@click.option("--force", is_flag=True, help="Promote it also if the first copy is incomplete.")
@destructive
@with_tools
def promote(tools: Tools, name: str, force: bool) -> None:
    """Promote a federated queue to a normal queue.

    The source is not contacted: fence it first, or both sites deliver the same messages.
    """
    change = f"promote {name}, whose source must not serve clients any more"
    if tools.is_stopped(change, "federated-queue", name):
        return
    found = tools.client.ask("PROMOTE", "federated-queue", name, {"force": force})
    messages = counted(found["messages"], "message")
    reported = f"promoted queue {name} with {messages}, as of LSN {found['place']} of its source"
    tools.printer.done(f"{reported}; the source was not contacted: make sure that it serves no clients")


@federated_queues.command("resynchronize", example="ctl federated-queues resynchronize orders")
@click.argument("name")
@destructive
@with_tools
def resynchronize(tools: Tools, name: str) -> None:
    """Drop the copy and copy the source again."""
    change = f"drop the messages of {name} and copy its source again"
    tools.change(change, f"copying {name} again", "RESYNCHRONIZE", "federated-queue", name)
