"""`cairnmq config`: check and show the configuration of the broker."""

from __future__ import annotations

from typing import Any

import click

from ...base.errors import InvalidOption
from ...base.texts import counted
from ..common.config_file import read_config
from ..common.configured_command import DEFAULT_FILE, ConfiguredCommand, config_option, rows_of
from ..common.described_options import options_of
from ..common.output import print_fields, print_rows, print_table, printable, remark
from ..common.statuses import invalid_options
from ..options.common_options import CommonGroup, log_options, output_options
from ..options.subjects import OUTPUT, SubjectOption
from .broker import broker
from .broker_options import checked_options
from .settings import BrokerSettings
from .unknown_variables import unknown_variables


@click.group("config", cls=CommonGroup, short_help="Check and show the configuration", example="config show --changed")
@output_options
@log_options
def config(**_: Any) -> None:
    """Check and show the configuration of the broker.

    Values come from the command line, environment variables (CAIRNMQ_*), a configuration file and defaults, in this
    order of precedence.
    """


@config.command("check", short_help="Check a configuration file", example="config check /etc/cairnmq.toml")
@click.argument("file", default=DEFAULT_FILE, type=click.Path())
@output_options
def check(file: str, output_format: str) -> None:
    """Check a configuration file, together with the environment.

    Keys, values and combinations are checked, and the files that they name: users, access rules, certificates, keys and
    tokens. Run it as the user of the broker.
    """
    found = read_config(file, broker.described())
    try:
        context = broker.make_context("broker", ["--config", file])
        settings = BrokerSettings(**context.params)
        with invalid_options():
            checked_options(settings)
    except click.ClickException as error:
        raise InvalidOption(file, error.format_message()) from error
    _warn(settings.connect_to)
    if not print_fields({"file": file, "options": len(found.values)}, output_format):
        click.echo(f"{printable(file)}: OK, {counted(len(found.values), 'option')}")


_COLUMNS = ("option", "value", "source", "reload")


def _warn(connect_to: tuple[str, ...]) -> None:
    for warning in unknown_variables(broker, connect_to):
        remark("config", f"warning: {warning}")


def _show(output_format: str, is_changed: bool, **values: Any) -> None:
    """Show the values of all options of `cairnmq broker`, and where each comes from.

    It accepts the options of `cairnmq broker`. Passwords are not shown. The column "reload" shows whether a reload
    applies a changed value.
    """
    rows = [row for row in rows_of(click.get_current_context()) if row["source"] != "default" or not is_changed]
    _warn(values["connect_to"])
    if not print_rows(rows, _COLUMNS, output_format):
        print_table([[(_shown(row[name]), "") for name in _COLUMNS] for row in rows], _COLUMNS)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(" ".join(value) if isinstance(value, list | tuple) else str(value))


config.add_command(
    output_options(ConfiguredCommand(
        "show",
        callback=_show,
        params=[
            SubjectOption(["--changed", "is_changed"], subject=OUTPUT, is_flag=True, help="Leave out defaults."),
            config_option(),
            *options_of(BrokerSettings),
        ],
        help=_show.__doc__,
        short_help="Show all values and their sources",
        example="config show --config cairnmq.toml --changed",
    ))
)  # fmt: skip
