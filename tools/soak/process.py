"""Client processes of a soak: how one is begun, from both sides."""

from __future__ import annotations

import json
import os
import sys

from .client import SoakClient
from .receiver import Drain, SoakReceiver
from .sender import Sender
from .transactions import TransactionReceiver, TransactionSender
from .wire import Settings

ROLES: dict[str, type[SoakClient]] = {"sender": Sender, "receiver": SoakReceiver, "drain": Drain}
IN_TRANSACTIONS: dict[str, type[SoakClient]] = ROLES | {"sender": TransactionSender, "receiver": TransactionReceiver}


def command(settings: Settings) -> list[str]:
    """The command that starts a client process. Its settings are an argument; the password is not."""
    given = json.dumps(settings._replace(password=""))
    return [sys.executable, "-c", f"from {__name__} import main; main()", given]


def _first_line() -> str:
    """Return the first line of standard input without reading ahead: the rest is read elsewhere."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line.decode().rstrip("\n")


def main() -> None:
    """The life of a client process. A password is the first line on standard input, if there is a user."""
    settings = Settings(*json.loads(sys.argv[1]))
    if settings.user:
        settings = settings._replace(password=_first_line())
    roles = IN_TRANSACTIONS if settings.per_transaction else ROLES
    try:
        roles[settings.role](settings).run()
    except OSError as error:
        sys.exit(f"{settings.name}: {error}")
