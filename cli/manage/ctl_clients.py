"""`cairnmq ctl connections`, `links` and `transactions`."""

from __future__ import annotations

import click

from ..options.confirmation import destructive
from ..options.subjects import example_of
from .ctl import Tools, group_of, with_tools

connections = group_of("connection", "connections", "Manage connections of clients.", "3")
sessions = group_of("session", "sessions", "Show sessions of clients.", "3.0")
links = group_of("link", "links", "Manage links of clients.", "3.7")
users = group_of("user", "users", "Show users, their usage and quotas.", "anna")
_XID = "0b5f"
transactions = group_of("transaction", "transactions", "Manage open and in-doubt transactions.", _XID)


def _closing(group: click.Group, type: str, identity: str) -> None:
    """Add the command that closes a connection or link. *identity*: that of the example."""
    text = f"Close a {type} by its identity.\n\nUnsettled messages are requeued."

    @group.command("close", help=text, epilog=example_of(f'ctl {type}s close {identity} --reason "maintenance"'))
    @click.argument("identity")
    @click.option("--reason", help="Reason that the client receives.")
    @destructive
    @with_tools
    def close(tools: Tools, identity: str, reason: str | None) -> None:
        body = {} if reason is None else {"reason": reason}
        tools.change(f"close {type} {identity}", f"closing {type} {identity}", "DELETE", type, identity, body)


_closing(connections, "connection", "3")
_closing(links, "link", "3.7")


def _ending(verb: str, operation: str, text: str, done: str, body: dict[str, bool] | None = None) -> None:
    operation_words = "roll back" if verb in ("rollback", "cancel") else verb

    @transactions.command(verb, help=text, epilog=example_of(f"ctl transactions {verb} {_XID}"))
    @click.argument("xid")
    @destructive
    @with_tools
    def end(tools: Tools, xid: str) -> None:
        change = f"{operation_words} transaction {xid}"
        tools.change(change, f"{done} transaction {xid}", operation, "transaction", xid, body)


_ending("commit", "DECIDE", "Commit a prepared transaction.", "committed", {"commit": True})
_ending("rollback", "DECIDE", "Roll back a prepared transaction.", "rolled back", {"commit": False})
_ending("cancel", "ROLLBACK", "Roll back an open transaction.\n\nIts client is notified.", "rolled back")
_ending("forget", "FORGET", "Forget a decided transaction.", "forgotten")
