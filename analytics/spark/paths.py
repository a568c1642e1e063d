"""Names of files as Spark's own readers take them."""

from __future__ import annotations

import os
import re

_GLOB = re.compile(r"([\\*?\[\]{}])")


def literal(path: str) -> str:
    """The one file at *path* on a file system that all processes see: no pattern, whatever its name is like."""
    return "file://" + _GLOB.sub(r"\\\1", os.path.abspath(path))
