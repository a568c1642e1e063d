"""Commands with described options: help by subject, and values from a configuration file and the environment."""

from __future__ import annotations

import os
import re
from typing import Any

import click
from click.core import ParameterSource

from ..options.subjects import GroupedCommand
from .config_file import read_config
from .described_options import FILE, ConfigFile, DescribedOption
from .units import Duration, Size, SizeRange

DEFAULT_FILE = "cairnmq.toml"
"""The configuration file in the working directory; read if it exists and no other file is named."""
_ARGUMENTS = "cairnmq.arguments"
_UNITS = {Size: "bytes", SizeRange: "bytes", Duration: "seconds"}
_EXTRA = re.compile(r"Got unexpected extra arguments? \((\S+).*\)")
_PASSWORD = re.compile(r"(://[^:/@?#]*):[^@/]*@")


class ConfiguredCommand(GroupedCommand):
    """A command whose options are also keys of a configuration file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if extra := _EXTRA.fullmatch(error.message):
                remedy = f"name the option, as in --store-dir {extra[1]}"
                text = f"Got unexpected extra argument ({extra[1]}): {remedy}"
                raise click.UsageError(text, ctx) from error
            raise

    def described(self) -> dict[str, DescribedOption]:
        """Return the described options by their keys."""
        return {param.key: param for param in self.params if isinstance(param, DescribedOption)}

    def parsed_again(self, ctx: click.Context) -> click.Context:
        """Return the context of the same arguments with the present file and environment. Raises `CairnError`."""
        return self.make_context(ctx.info_name, list(ctx.meta[_ARGUMENTS]))


def _read(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    assert isinstance(ctx.command, ConfiguredCommand)
    path = path or (DEFAULT_FILE if os.path.isfile(DEFAULT_FILE) else None)
    if path is None or ctx.resilient_parsing:
        return
    options = ctx.command.described()
    file = ctx.meta[FILE] = read_config(path, options, "--config")
    ctx.default_map = {str(options[key].name): value for key, value in file.values.items()}


def config_option() -> click.Option:
    """Return `--config`, which is read before the other options."""
    return click.Option(
        ["--config"], type=click.Path(), envvar="CAIRNMQ_CONFIG", is_eager=True, expose_value=False,
        callback=_read, metavar="FILE", help=f"TOML file with values of these options.  [default: {DEFAULT_FILE} if it "
        "exists]",
    )  # fmt: skip


def rows_of(ctx: click.Context) -> list[dict[str, Any]]:
    """Return a row for each described option of a parsed context: its value without passwords, and its source."""
    assert isinstance(ctx.command, ConfiguredCommand)
    rows = []
    for key, option in ctx.command.described().items():
        source = ctx.get_parameter_source(str(option.name))
        if source is ParameterSource.DEFAULT_MAP:
            file: ConfigFile = ctx.meta[FILE]
            text = f"{file.path}:{file.lines.get(key, 1)}"
        elif source is ParameterSource.ENVIRONMENT:
            text = str(option.envvar)
        else:
            text = "command line" if source is ParameterSource.COMMANDLINE else "default"
        value = without_secrets(option, ctx.params[str(option.name)])
        unit = next((unit for kind, unit in _UNITS.items() if isinstance(option.type, kind)), None)
        rows.append({"option": key, "value": value, "unit": unit, "source": text, "reload": option.can_reload})
    return rows


def without_secrets(option: DescribedOption, value: Any) -> Any:
    """Return the value with passwords of URLs replaced by `***`."""
    if not option.is_secret or value is None:
        return value
    hidden = [_PASSWORD.sub(r"\1:***@", text) for text in ([value] if isinstance(value, str) else value)]
    return hidden[0] if isinstance(value, str) else hidden
