"""Paths that name an object store or a distributed file system."""

from __future__ import annotations

import re

from .errors import InvalidOption

_REMOTE = re.compile(
    r"[a-z][a-z0-9+.-]+://|(dbfs|s3[an]?|gs|abfss?|wasbs?|adl|hdfs|viewfs|oss|cosn?|webhdfs|swift|file):", re.IGNORECASE
)
"""A URL, or a scheme that is written without slashes, such as `dbfs:/table`."""


def refuse_remote(path: str, option: str = "") -> None:
    """Raise `InvalidOption` if *path*, the value of *option*, is not on a file system."""
    if is_remote(path):
        reason = "stores and archives are on file systems only"
        raise InvalidOption(f"{option} {path}".strip(), reason, "mount it, and name the directory")


def is_remote(path: str) -> bool:
    """Return whether *path* is a URL rather than a path of the local file system."""
    return _REMOTE.match(path) is not None
