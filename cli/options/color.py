"""Color in the output: `--color`, CAIRNMQ_COLOR and NO_COLOR."""

from __future__ import annotations

import os
from typing import Any

import click

COLOR = "CAIRNMQ_COLOR"


def set_color(ctx: click.Context, param: click.Parameter, choice: str) -> None:
    """Keep the choice for consoles that are made later."""
    os.environ[COLOR] = choice


def console_colors() -> dict[str, Any]:
    """Return the arguments of a rich console for the choice."""
    choice = os.environ.get(COLOR, "auto")
    if choice == "always":
        return {"force_terminal": True, "no_color": False}
    return {"color_system": None} if choice == "never" or os.environ.get("NO_COLOR") else {}
