"""`cairnmq ctl followings` and `followers`."""

from __future__ import annotations

from typing import Any

import click

from .ctl import Tools, arguments_option, deleting, group_of, with_tools

followings = group_of("following", "followings", "Queues that follow a queue of another site.")
followers = group_of("follower", "followers", "Who follows the queues of this broker.")

deleting(followings, "following", text="Follow no more, and drop what there is.")


@followings.command("create")
@click.argument("name")
@click.argument("connector")
@click.option("--source", default="", help="The queue there, if its name is another one.")
@arguments_option
@with_tools
def create_following(tools: Tools, name: str, connector: str, source: str, arguments: dict[str, Any]) -> None:
    """Have NAME follow the queue of that name at the broker that the connector leads to. Arguments are those that NAME
    has when it is taken over."""
    body = {"connector": connector, "source": source or name, "arguments": arguments}
    tools.client.ask("CREATE", "following", name, body)
    tools.printer.done(f"{name} follows {source or name} over {connector}")


@followings.command("take-over")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if it has not got all that the source had when it was begun.")
@with_tools
def take_over(tools: Tools, name: str, force: bool) -> None:
    """Follow no more: NAME is a queue as any other from now on. Nobody asks the source, which may be gone: see to it
    that it serves nobody any more."""
    found = tools.client.ask("TAKE-OVER", "following", name, {"force": force})
    told = f"queue {name} is taken over with {found['messages']} messages, as of LSN {found['place']} of its source"
    tools.printer.done(f"{told}; the source was not asked: see to it that it serves nobody")


@followings.command("begin-anew")
@click.argument("name")
@with_tools
def begin_anew(tools: Tools, name: str) -> None:
    """Drop what there is, and have all that the source has now."""
    tools.client.ask("BEGIN-ANEW", "following", name)
    tools.printer.done(f"{name} begins anew")
