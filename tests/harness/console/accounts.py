"""A users file for a broker with a console."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import make


def write_users(path: Path, passwords: Mapping[str, str]) -> None:
    """Write a users file with these passwords by user name."""
    kept = {name: make(password) for name, password in passwords.items()}
    users.change(str(path), lambda accounts: accounts.update(kept))
