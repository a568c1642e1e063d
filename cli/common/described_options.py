"""Options that are defined once, as the fields of a dataclass.

The click options, the environment variables, the keys of the configuration file, the grouped help and the reference
page are derived from the fields. Precedence: command line, environment, configuration file, default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from ...base.errors import CairnError, InvalidOption
from ..options.subjects import SubjectOption

PREFIX = "CAIRNMQ_"
FILE = "cairnmq.config"
"""The key of the configuration file in the `meta` of a click context."""


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file that was read. Its keys are known, and its values have the TOML types of the options."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    """Key to line."""

    def place(self, key: str) -> str:
        """Return file, line and key, for errors."""
        return f"{self.path}:{self.lines.get(key, 1)}: {key}"


class DescribedOption(SubjectOption):
    """An option with a subject, an environment variable and a key of the configuration file."""

    def __init__(
        self, declarations: Sequence[str], *, subject: str, can_reload: bool = False, is_secret: bool = False,
        **more: Any,
    ) -> None:  # fmt: skip
        """*can_reload*: a reload applies a changed value. *is_secret*: the value may contain a password."""
        super().__init__(declarations, subject=subject, **more)
        self.can_reload = can_reload
        self.is_secret = is_secret

    @property
    def key(self) -> str:
        """Return the key in the configuration file: the name of the option without its dashes."""
        return next(name for name in self.opts if name.startswith("--"))[2:]

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert *value*; an error names the environment variable, or the file and the line."""
        source = ctx.get_parameter_source(str(self.name))
        if source not in (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP):
            return super().process_value(ctx, value)
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as error:
            remedy = f"see {ctx.command_path} --help"
            raise InvalidOption(self._place(ctx, source, value), error.message.rstrip("."), remedy) from error
        except CairnError as error:
            raise InvalidOption(self._place(ctx, source, value), error.reason, error.remedy) from error

    def _place(self, ctx: click.Context, source: ParameterSource, value: Any) -> str:
        shown = "" if self.is_secret else f" = {value!r}"
        if source is ParameterSource.ENVIRONMENT:
            return f"{self.envvar} in the environment{shown}"
        file: ConfigFile = ctx.meta[FILE]
        return f"{file.place(self.key)}{shown}"


def option(
    subject: str, help: str, kind: click.ParamType[Any] | None = None, *, short: Sequence[str] = (), **more: Any
) -> Any:
    """Define an option as the field of a dataclass. Its name is that of the field, with dashes for underscores.

    A field of type `bool` is a flag, a field of type `tuple[str, ...]` may be given many times.
    """
    return dataclasses.field(metadata={"subject": subject, "help": help, "type": kind, "short": short, **more})


def options_of(settings: type[Any]) -> list[DescribedOption]:
    """Return the click options of the dataclass *settings*, in the order of its fields."""
    return [_click_option(field) for field in dataclasses.fields(settings)]


def _click_option(field: dataclasses.Field[Any]) -> DescribedOption:
    more: dict[str, Any] = dict(field.metadata)
    name = field.name.replace("_", "-")
    if field.type == "bool":
        more |= {"is_flag": True, "default": False}
    elif field.type == "tuple[str, ...]":
        more["multiple"] = True
    more.setdefault("show_default", more.get("default") not in (None, False, 0) and not more.get("multiple"))
    if isinstance(more["type"], click.IntRange) and "metavar" not in more:
        more["metavar"] = "SIZE" if more["type"].name == "size range" else "N"
    declarations = [*more.pop("short"), f"--{name}", field.name]
    return DescribedOption(declarations, envvar=PREFIX + field.name.upper(), **more)
