"""Findings of `cairnmq doctor`."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """The severity of a finding; also the order of the output."""

    OK = 0
    WARNING = 1
    ERROR = 2


class Finding(NamedTuple):
    """The result of a check."""

    check: str
    """The subject: disk, clock, limits and so on."""
    severity: Severity
    text: str
    remedy: str = ""
    """The action that resolves it; empty if nothing is wrong."""

    def fields(self) -> dict[str, str]:
        return self._asdict() | {"severity": self.severity.name.lower()}
