"""A directory that a command creates or writes to: on a local or mounted file system."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import click

from ...base.remote_paths import refuse_remote


class LocalDirectory(click.Path):
    """A path of the file system. A URL would become a local directory with a name like `s3:` or `dbfs:`."""

    envvar_list_splitter = " "  # as of all options

    def __init__(self, *, file_okay: bool = True) -> None:
        """With *file_okay* the command itself reports a file in the place of the directory."""
        super().__init__(file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fsdecode(value)
        refuse_remote(text, param.opts[0] if param is not None and param.opts[0].startswith("-") else "")
        path = super().convert(value, param, ctx)
        if not text:
            self.fail("The path is empty; name a directory.", param, ctx)
        full = os.path.abspath(text)
        obstacle = _obstacle(os.path.dirname(full) if self.file_okay else full)
        if obstacle is not None:
            reason = f"Directory {text!r} cannot exist: {obstacle!r} is not a directory; name another one."
            self.fail(reason, param, ctx)
        return path


def _obstacle(path: str) -> str | None:
    """Return *path* or its nearest existing parent if that is not a directory.

    A link to a missing target is no obstacle: the target may be on a disk that is mounted later.
    """
    while True:
        try:
            return None if stat.S_ISDIR(os.stat(path).st_mode) else path
        except (FileNotFoundError, NotADirectoryError):
            path = os.path.dirname(path)
        except OSError as error:
            return path if error.errno == errno.ELOOP else None
