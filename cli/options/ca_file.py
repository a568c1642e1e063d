"""A file of CA certificates as the value of an option."""

from __future__ import annotations

import os
from typing import Any

import click

from ...base.errors import InvalidOption


class CaFile(click.Path):
    """A file with CA certificates (PEM)."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        import ssl  # help and completion do without

        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            place = f"--ca {os.fsdecode(path)}"
            raise InvalidOption(place, f"can't be used: {reason}", "name a PEM file with CA certificates") from error
        return path
