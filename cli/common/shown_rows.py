"""Results of commands: tables by rich, and objects as lines."""

from __future__ import annotations

import json
import sys

from rich.console import Console

from ..options.color import console_colors
from .output import OutputConsole

_WIDTH = 160
"""The line width of output that is not a terminal."""


def console() -> Console:
    """Return the console for tables, and for text without markup."""
    width = None if sys.stdout.isatty() else _WIDTH
    return OutputConsole(highlight=False, soft_wrap=True, markup=False, width=width, **console_colors())


def line(value: object) -> None:
    """Print one JSON object as a line."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
