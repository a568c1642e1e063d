"""Options with a subject, commands whose help lists the options by subject, and examples in a help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from inspect import cleandoc
from typing import Any, TypeVar, cast

import click

INPUT, SELECTION, TARGET, CONNECTION, ANALYSIS, OUTPUT, SAFETY = (
    "Input", "Selection", "Target", "Connection", "Analysis", "Output", "Safety"
)  # fmt: skip
"""The subjects of options of commands other than `cairnmq broker`."""
OPTIONS, GENERAL = "Options", "General"
"""The sections of options without a subject."""
_F = TypeVar("_F", bound=Callable[..., Any])


class SubjectOption(click.Option):
    """An option that the help lists under its subject."""

    def __init__(self, declarations: Sequence[str], *, subject: str, is_common: bool = False, **more: Any) -> None:
        """*is_common*: groups pass the option on to their commands."""
        super().__init__(declarations, **more)
        self.subject = subject
        self.is_common = is_common


def option(
    subject: str, *declarations: str, cls: type[SubjectOption] = SubjectOption, **more: Any
) -> Callable[[_F], _F]:
    """Return the decorator that adds an option with a subject to commands, which share it: making one costs time."""
    made = cls(declarations, subject=subject, **more)
    return click.option(cls=cast("type[SubjectOption]", lambda *_, **__: made))


def several(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return the decorator that adds *options*, in this order in the help."""
    return lambda command: reduce(lambda found, add: add(found), reversed(options), command)


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write a section per subject, in the order of the first option of each.

    The options without a subject are the first section, but for `--help`, which is in the last one.
    """
    sections: dict[str, list[tuple[str, str]]] = {OPTIONS: []}
    general: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None or isinstance(param, click.Argument):
            continue
        subject = param.subject if isinstance(param, SubjectOption) else GENERAL if param.is_eager else OPTIONS
        (general if subject == GENERAL else sections.setdefault(subject, [])).append(record)
    for subject, records in (*sections.items(), (GENERAL, general)):
        if records:
            with formatter.section(subject):
                formatter.write_dl(records)


def example_of(call: str) -> str:
    """Return the epilog of a command with this call, whose program name `cairnmq` is added."""
    return f"\b\nExample:\n  cairnmq {call}"


class ShortHelp(click.Command):
    """A command whose short help is a title: its first sentence, without the period."""

    def __init__(self, name: str | None, *, help: str | None = None, example: str = "", **more: Any) -> None:
        """*example*: a call without the program name, which is shown below *help*."""
        text = f"{cleandoc(help or '')}\n\n{example_of(example)}" if example else help
        super().__init__(name, help=text, **more)

    def get_short_help_str(self, limit: int = 45) -> str:
        text = super().get_short_help_str(limit)
        return text if text.endswith("...") else text.removesuffix(".")


class GroupedCommand(ShortHelp):
    """A command whose help lists the options by subject."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)
