"""A PostgreSQL server for tests: Debian's package, on a socket in a temporary directory that is removed afterwards."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from threading import Thread

USER, PASSWORD, DATABASE = "cairn", "se-cret/@:1", "wiring"
DEADLINE_S = 180
PREPARED_TRANSACTIONS = 4
"""The limit of prepared transactions; Debian's default is 0."""
_ACCOUNT = "postgres"
"""The account of the server when tests run as root: PostgreSQL does not run as root."""
_QUOTED = "se-cret%2F%40%3A1"


def denial_reason() -> str:
    """Return the reason why no server can run; empty if one can."""
    if not _programs():
        return "PostgreSQL is not installed: as root, apt-get install postgresql"
    if os.getuid() == 0 and not shutil.which("setpriv"):
        return "PostgreSQL does not run as root, and there is no setpriv"
    return ""


def _programs() -> str:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]))
    return found[-1] if found else ""


class Server:
    """A server that the constructor starts; it may be stopped and started again."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cairn-pg-", dir="/tmp"))  # the path of a socket has at most 107 bytes
        self._as_user: list[str] = []
        if os.getuid() == 0:
            account = pwd.getpwnam(_ACCOUNT)
            os.chown(self.path, account.pw_uid, account.pw_gid)
            self._as_user = ["setpriv", f"--reuid={_ACCOUNT}", f"--regid={_ACCOUNT}", "--init-groups",
                             "--pdeathsig=QUIT"]  # fmt: skip
        secret = self.path / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run("initdb", "-D", self.data, "-U", USER, "-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8",
                  "--locale=C", "--no-sync")  # fmt: skip
        self.start()
        self.sql(f"CREATE DATABASE {DATABASE}", database="postgres")

    @property
    def data(self) -> str:
        return str(self.path / "data")

    def url(self, user: str = USER, password: str = _QUOTED, database: str = DATABASE) -> str:
        return f"postgresql+psycopg://{user}:{password}@/{database}?host={self.path}"

    def sql(self, *statements: str, database: str = DATABASE) -> str:
        """Execute *statements* as the superuser, and return the output of psql."""
        done = subprocess.run(
            [f"{_programs()}/psql", "-h", str(self.path), "-U", USER, "-d", database, "-X", "-q", "-A", "-t",
             *(part for statement in statements for part in ("-c", statement))],
            env={**os.environ, "PGPASSWORD": PASSWORD, "PGOPTIONS": "-c default_transaction_read_only=off"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stdout)
        return done.stdout.strip()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        command = [f"{_programs()}/postgres", "-D", self.data, "-k", str(self.path), "-c", "listen_addresses=",
                   "-c", f"max_prepared_transactions={PREPARED_TRANSACTIONS}"]  # fmt: skip
        self._process = subprocess.Popen([*self._as_user, *command], stderr=subprocess.PIPE, text=True, cwd="/")
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if "ready to accept connections" in line:
                break
        else:
            raise RuntimeError("".join(lines))
        Thread(target=self._process.stderr.read, daemon=True).start()

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server, by default at once: it disconnects all clients, and writes no checkpoint."""
        self._process.send_signal(how)
        self._process.wait(DEADLINE_S)

    def remove(self) -> None:
        if self._process.poll() is None:
            self.stop()
        shutil.rmtree(self.path)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, f"{_programs()}/{program}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd="/")
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
