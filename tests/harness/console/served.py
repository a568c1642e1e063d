"""A broker with a console, for the tests of a module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness.process import BrokerProcess


class Served(NamedTuple):
    """A broker and the port of its console."""

    process: BrokerProcess
    port: int
    directory: Path

    def audit(self) -> list[dict[str, Any]]:
        """Return the records of the audit trail."""
        return [json.loads(line) for line in (self.directory / "audit").read_text().splitlines()]
