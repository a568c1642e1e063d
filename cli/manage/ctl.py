"""`cairnmq ctl`: look into a running broker, and change it, by its management over AMQP."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...base.texts import counted
from ..common.login_options import checked_url, login_of
from ..common.standard_streams import discard_output
from ..common.units import Duration
from ..options.common_options import CommonGroup, ca_option, output_options, url_option, user_option
from ..options.confirmation import confirm, destructive, dry_run_option
from ..options.subjects import CONNECTION, example_of, option, several
from .completion import NameOf
from .ctl_lists import ListView, RowFilter, list_options, repeat

if TYPE_CHECKING:
    from .ctl_client import ManagementClient
    from .ctl_tables import Printer

Command = Callable[..., Any]
SINGLE_COLUMNS = {
    "broker": ("version", "uptime-seconds", "queues", "connections", "links", "memory-used-bytes", "alarms"),
    "store": ("durable-lsn", "next-lsn", "full"),
    "cluster": ("phase", "serving", "connected", "queues", "owned-queues", "waiting-events", "unfinished"),
}
"""The columns of objects of which each broker has one, for all members of a cluster."""
COLUMNS = {
    "queue": (
        "name", "state", "messages", "ready", "unsettled", "consumers", "enqueue-rate", "dequeue-rate", "durable",
        "bindings", "enqueued", "dequeued",
    ),
    "exchange": ("name", "exchange-type", "durable", "bindings", "routed", "unroutable"),
    "binding": ("exchange", "queue", "key", "arguments", "durable"),
    "template": ("name", "arguments"),
    "connection": ("identity", "name", "user", "container", "links", "idle-seconds", "since"),
    "session": ("identity", "number", "connection", "links", "since"),
    "link": ("identity", "name", "role", "address", "credit", "unsettled", "since"),
    "user": (
        "name", "connections", "links", "queues", "durable-bytes", "throttled-links", "max-links", "max-queues",
        "max-durable-bytes", "max-messages-per-second",
    ),
    "connector": ("name", "url", "role", "state", "container", "links", "since", "reason"),
    "link-route": ("name", "connector", "direction", "strip"),
    "auto-link": ("name", "direction", "address", "connector", "external", "state", "reason"),
    "federated-queue": ("name", "connector", "source", "state", "complete", "messages", "lag-seconds", "reason"),
    "downstream": ("name", "queue", "place", "behind-bytes"),
    "router": ("name", "next", "cost", "addresses", "sent", "received"),
    "transaction": ("name", "state", "operations", "age-seconds", "connection"),
}


class Tools(NamedTuple):
    """The tools of a command: the client that asks, the printer, and the values of `--yes` and `--dry-run`."""

    client: ManagementClient
    printer: Printer
    is_sure: bool = False
    is_dry_run: bool = False

    def is_stopped(self, change: str, type: str, name: str) -> bool:
        """Return whether a dry run ends with the report of *change*, or else ask for it on a terminal.

        A dry run reads the entity, and so reports one that does not exist.
        """
        if self.is_dry_run:
            self.client.ask("READ", type, name)
            self.printer.done(f"would {change}")
        else:
            self.confirm(change)
        return self.is_dry_run

    def confirm(self, change: str) -> None:
        """Ask for *change* on a terminal. Raises `InvalidOption` without a terminal and without `--yes`."""
        confirm(change, f"{change[0].upper()}{change[1:]}?", is_sure=self.is_sure)

    def change(
        self, change: str, done: str, operation: str, type: str, name: str, body: Mapping[str, Any] | None = None
    ) -> None:
        """Request an operation, and report *done*, unless `is_stopped`."""
        if not self.is_stopped(change, type, name):
            self.client.ask(operation, type, name, body)
            self.printer.done(done)


connection_options = several(
    url_option,
    user_option,
    ca_option,
    option(
        CONNECTION, "--timeout", "timeout_s", default="10s", show_default=True, type=Duration(0.1), is_common=True,
        help="Deadline of each request.",
    ),
    output_options,
)  # fmt: skip
"""The options of a connection to the broker, and the formats of the output."""


class _Ctl(CommonGroup):
    """The group `ctl`. It ends silently on a closed pipe (`| head`)."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
            return found
        except BrokenPipeError:
            discard_output()
            sys.exit(0)


@click.group("ctl", cls=_Ctl)
@connection_options
def ctl(**_: Any) -> None:
    """Manage a running broker over AMQP.

    These options may also follow the command.

    \b
    Examples:
      cairnmq ctl queues list --output csv
      cairnmq ctl --url amqps://mq.example.org --user anna queues peek orders
    """


def group_named(name: str, **more: Any) -> Callable[[Callable[..., Any]], click.Group]:
    """Return the decorator that makes a group of `ctl`."""
    return lambda made: ctl.group(name, cls=CommonGroup, **more)(connection_options(made))


def with_tools(command: Command) -> Command:
    """Add the options of a connection; the command gets the tools as its first argument."""

    def wrapped(
        *args: Any, url: str, user: str | None, ca: str | None, timeout_s: float, output_format: str, **options: Any
    ) -> Any:
        from .ctl_client import ManagementClient  # help does without
        from .ctl_tables import Printer

        checked_url(url)
        client = ManagementClient(lambda: login_of(url, user, ca, timeout_s), timeout_s)
        click.get_current_context().call_on_close(client.close)
        tools = Tools(client, Printer(output_format), options.pop("is_sure", False), options.pop("is_dry_run", False))
        return command(tools, *args, **options)

    return connection_options(update_wrapper(wrapped, command))


def argument_of(option: str) -> Callable[[str], tuple[str, Any]]:
    """Return the function that reads KEY=VALUE of *option*."""
    return partial(_value_of, option)


def _value_of(option: str, text: str) -> tuple[str, Any]:
    """KEY=VALUE: a number, true or false where it looks like one, else a text; `=` in quotes stays a text."""
    key, sign, raw = text.partition("=")
    if not key or not sign:
        raise click.UsageError(f"{option} {text}: not KEY=VALUE, such as max-messages=1000")
    if raw in ("true", "false"):
        return key, raw == "true"
    try:
        number = int(raw)
    except ValueError:
        return key, raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] == '"' else raw
    if not -(1 << 63) <= number < 1 << 63:
        raise click.UsageError(f"{option} {text}: the number does not fit into 64 bits; use quotes for a text")
    return key, number


arguments_option = click.option(
    "-a", "--argument", "arguments", multiple=True, metavar="KEY=VALUE",
    callback=lambda context, option, texts: dict(map(argument_of("--argument"), texts)),
    help="Argument of the created or changed entity. Repeatable.",
)  # fmt: skip
_CLUSTER = click.option("--cluster", is_flag=True, help="Include all members of the cluster.")


def _list_rows(
    tools: Tools, type: str, columns: tuple[str, ...], view: ListView, like: str = "*", *, internal: bool = False,
    cluster: bool,
) -> None:  # fmt: skip
    """Print rows; with *cluster* those of all members, and the silent members on the error output."""
    from .ctl_client import SilentMembers

    unheard = SilentMembers()
    rows = tools.client.rows(type, unheard if cluster else None, internal=internal)
    columns = view.columns or (("member", *columns) if cluster else columns)
    tools.printer.rows(view.rows(row for row in rows if fnmatchcase(row["name"], like)), columns)
    if str(unheard):
        click.echo(f"cluster: {unheard}", err=True)


def group_of(type: str, plural: str, text: str, name: str) -> click.Group:
    """Return a group with `list` and `show`. *name*: the entity in the example of `show`."""

    @ctl.group(plural, cls=CommonGroup, help=text, epilog=example_of(f"ctl {plural} list"))
    @connection_options
    def group(**_: Any) -> None: ...

    @group.command("list", help=f"List {plural}, one per line.", epilog=example_of(f"ctl {plural} list --output csv"))
    @click.option("--like", default="*", show_default=True, help="List only names that match this pattern.")
    @click.option("--internal", is_flag=True, help="Include queues of the broker itself.")
    @_CLUSTER
    @list_options
    @with_tools
    def list_(
        tools: Tools, like: str, internal: bool, cluster: bool, columns: tuple[str, ...], sort: str,
        filters: tuple[RowFilter, ...], watch_s: float | None,
    ) -> None:  # fmt: skip
        view = ListView(columns, sort, filters)
        repeat(lambda: _list_rows(tools, type, COLUMNS[type], view, like, internal=internal, cluster=cluster), watch_s)

    @group.command(
        "show", help=f"Show all attributes of the {type} NAME.", epilog=example_of(f"ctl {plural} show {name}")
    )
    @click.argument("name", type=NameOf(type))
    @with_tools
    def show(tools: Tools, name: str) -> None:
        tools.printer.one(tools.client.ask("READ", type, name))

    return group


def deleting(group: click.Group, type: str, text: str, name: str) -> None:
    """Add the command that deletes an entity. *name*: the one in the example."""

    @group.command("delete", help=text, epilog=example_of(f"ctl {group.name} delete {name}"))
    @click.argument("name", type=NameOf(type))
    @destructive
    @with_tools
    def delete(tools: Tools, name: str) -> None:
        tools.change(f"delete {type} {name}", f"deleted {type} {name}", "DELETE", type, name)


MEMBER_COLUMNS = ("node", "address", "state", "leader-of", "process", "incarnation", "this-one")


def show_cluster(tools: Tools) -> None:
    """A summary, and a row for each member."""
    found = tools.client.ask("READ", "cluster", "cluster")
    if "member-states" not in found:  # a broker of an earlier version
        tools.printer.one(found)
        return
    names = ("cluster", "phase", "serving", "connected", "needed", "queues", "waiting-events", "unfinished")
    tools.printer.one({name: found[name] for name in names})
    tools.printer.rows(found["member-states"], MEMBER_COLUMNS)


def _single(type: str, text: str) -> None:
    """Add the command that shows an object of which each broker has one."""

    @ctl.command(type, help=text, epilog=example_of(f"ctl {type}"))
    @_CLUSTER
    @with_tools
    def show(tools: Tools, cluster: bool) -> None:
        if cluster:
            _list_rows(tools, type, SINGLE_COLUMNS[type], ListView(), cluster=True)
        elif type == "cluster" and not tools.printer.as_json:
            show_cluster(tools)
        else:
            tools.printer.one(tools.client.ask("READ", type, type))


_single("broker", "Show version, uptime, totals and alarms.")
_single("store", "Show the figures of the store.")
_single("cluster", "Show the cluster as this member sees it.")


@ctl.command("reload", example="ctl reload --dry-run")
@dry_run_option
@with_tools
def reload(tools: Tools) -> None:
    """Reload users, rules, certificates and options.

    Revocation lists are included. Of the options in the configuration file, a reload applies those that can change at
    run time; `cairnmq config show` lists them. A dry run only checks the files.
    """
    found = tools.client.ask("RELOAD", "broker", "broker", {"dry-run": True} if tools.is_dry_run else None)
    closed = counted(found["closed"], "connection or link", "connections and links")
    tools.printer.done("the files are valid; nothing was changed" if tools.is_dry_run else f"reloaded; closed {closed}")
    if found["restart-needed"]:
        click.echo(
            f"cairnmq ctl reload: changed, and used from the next start on: {', '.join(found['restart-needed'])}",
            err=True,
        )
