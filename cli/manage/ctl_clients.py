"""`cairnmq ctl connections`, `links` and `transactions`."""

from __future__ import annotations

import click

from .ctl import Tools, group_of, with_tools

connections = group_of("connection", "connections", "Clients' connections.")
sessions = group_of("session", "sessions", "Sessions of clients' connections.")
links = group_of("link", "links", "Clients' links.")
users = group_of("user", "users", "Users: what they have, against their quotas.")
transactions = group_of("transaction", "transactions", "Transactions that are open, or in doubt.")


def _closing(group: click.Group, type: str) -> None:
    @group.command("close", help=f"Close a {type}, by its identity. What it has not settled goes back.")
    @click.argument("identity")
    @click.option("--reason", help="For the client.")
    @with_tools
    def close(tools: Tools, identity: str, reason: str | None) -> None:
        tools.client.ask("DELETE", type, identity, {} if reason is None else {"reason": reason})
        tools.printer.done(f"{type} {identity} is being closed")


_closing(connections, "connection")
_closing(links, "link")


def _ending(verb: str, operation: str, text: str, done: str, body: dict[str, bool] | None = None) -> None:
    @transactions.command(verb, help=text)
    @click.argument("xid")
    @with_tools
    def end(tools: Tools, xid: str) -> None:
        tools.client.ask(operation, "transaction", xid, body)
        tools.printer.done(f"transaction {xid} is {done}")


_ending("commit", "DECIDE", "Commit one that is prepared, by an operator.", "committed", {"commit": True})
_ending("rollback", "DECIDE", "Roll back one that is prepared, by an operator.", "rolled back", {"commit": False})
_ending("cancel", "ROLLBACK", "Roll back one that is open, by an operator: its client hears it.", "rolled back")
_ending("forget", "FORGET", "Let go of one that was decided on.", "forgotten")
