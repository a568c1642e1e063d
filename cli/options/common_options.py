"""Options that many commands share, each with one definition.

A group accepts them for its commands, too: `cairnmq --output csv ctl queues list` and `cairnmq ctl --output csv queues
list` are `cairnmq ctl queues list --output csv`. Where an option is given twice, the one nearest to the end applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from .ca_file import CaFile
from .color import COLOR, set_color
from .subjects import (
    ANALYSIS,
    CONNECTION,
    INPUT,
    OUTPUT,
    SELECTION,
    TARGET,
    GroupedCommand,
    ShortHelp,
    SubjectOption,
    option,
    several,
    write_options,
)

__all__ = [
    "ANALYSIS", "INPUT", "LOGS", "LOG_FILE", "LOG_FORMAT", "LOG_LEVEL", "OUTPUT", "OUTPUTS", "PASSWORD",
    "PASSWORD_FILE", "SELECTION", "TARGET", "USER", "CommonGroup", "GroupedCommand", "ca_option", "log_options",
    "option", "output_options", "url_option", "user_option", "with_color",
]  # fmt: skip

OUTPUTS = ("table", "raw", "json", "csv")
BROKER_URL = "amqp://127.0.0.1:5672"
PASSWORD, PASSWORD_FILE, USER = "CAIRNMQ_PASSWORD", "CAIRNMQ_PASSWORD_FILE", "CAIRNMQ_USER"
LOGS = "Logs"
LOG_LEVEL: dict[str, Any] = {
    "help": "Least severe level to log.", "type": click.Choice(["debug", "info", "warning", "error"])
}  # fmt: skip
LOG_FORMAT: dict[str, Any] = {"help": "Format of log lines.", "type": click.Choice(["text", "json", "logfmt"])}
LOG_FILE: dict[str, Any] = {
    "help": "Append the log to this file.  [default: the standard streams]",
    "type": click.Path(dir_okay=False), "metavar": "FILE",
}  # fmt: skip

url_option = option(
    CONNECTION, "--url", default=BROKER_URL, show_default=True, envvar="CAIRNMQ_URL", is_common=True,
    help="The broker, like amqp://host:port or amqps://host:port.",
)  # fmt: skip


def _keep_password_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is not None:
        ctx.meta[PASSWORD_FILE] = path


user_option = several(
    option(
        CONNECTION, "--user", metavar="NAME", is_common=True,
        help=f"User name, or {USER} if the URL has none. The password is in {PASSWORD}, or requested.",
    ),
    option(
        CONNECTION, "--password-file", metavar="FILE", expose_value=False, callback=_keep_password_file,
        help=f"Read the password from a file that only its owner can read; or {PASSWORD_FILE}.",
    ),
)  # fmt: skip
ca_option = option(
    CONNECTION, "--ca", type=CaFile(), metavar="FILE", is_common=True,
    help="CA certificates to trust, with amqps (PEM).",
)  # fmt: skip
_color_option = option(
    OUTPUT, "--color", type=click.Choice(["auto", "always", "never"]), default="auto", envvar=COLOR, show_default=True,
    expose_value=False, callback=set_color, help="Color the output; NO_COLOR stands for never.",
)  # fmt: skip
output_options = several(
    option(
        OUTPUT, "--output", "output_format", type=click.Choice(OUTPUTS), default="table", show_default=True,
        is_common=True, help="Format of the output.",
    ),
    option(OUTPUT, "--json", "output_format", flag_value="json", is_common=True, help="Short for --output json."),
    option(
        OUTPUT, "--raw", "output_format", flag_value="raw", is_common=True,
        help="Short for --output raw: a table of unformatted values, without a limit of its width.",
    ),
)  # fmt: skip
log_options = several(
    option(LOGS, "--log-level", is_common=True, **LOG_LEVEL),
    option(LOGS, "--log-format", is_common=True, **LOG_FORMAT),
    option(LOGS, "--log-file", is_common=True, **LOG_FILE),
)
"""The options of the log, without defaults: a group passes on what is given."""


def with_color(command: click.Command) -> click.Command:
    """Return *command*. It and the commands below it accept `--color`."""
    if all(param.name != "color" for param in command.params):
        _color_option(command)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_color(below)
    return command


class CommonGroup(ShortHelp, click.Group):
    """A group that passes the common options that it is called with on to its command."""

    command_class = GroupedCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, rest if command is None else [*_passed_on(self, ctx, command), *rest]


def _passed_on(group: click.Group, ctx: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the common options of the command line of *group* as arguments of *command*."""
    own = {str(param.name): param for param in group.params if isinstance(param, SubjectOption) and param.is_common}
    accepted = {str(param.name) for param in command.params if isinstance(param, SubjectOption) and param.is_common}
    for name, param in own.items():
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = str(ctx.params[name])
        if name in accepted:
            yield from (param.opts[0], value) if not param.is_flag else ("--output", value)
        elif not ctx.resilient_parsing:
            option_name = "--output" if name == "output_format" else param.opts[0]
            ctx.fail(f"`{ctx.command_path} {command.name}` has no option {option_name}.")
