"""The RabbitMQ server of the Debian package, for tests that need another AMQP 1.0 broker."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from cairnmq.tools.soak.servers import free_port

USER = PASSWORD = "guest"
QUEUE_ADDRESS = "/queue/{name}"
TOPIC_ADDRESS = "/topic/{name}"
FANOUT_ADDRESS = "/exchange/amq.fanout"
_DEADLINE_S = 300.0
_PLACES = Path("/usr/lib/rabbitmq/lib")


def denial_reason() -> str:
    """Return the reason why RabbitMQ cannot run on this machine; empty if it can."""
    if not _programs():
        return "rabbitmq-server is not installed (scripts/debian-packages-for-tests)"
    return "" if shutil.which("epmd") else "epmd is not installed"


def _programs() -> list[Path]:
    return sorted(_PLACES.glob("rabbitmq_server-*/sbin/rabbitmq-server"))


class RabbitMq:
    """A node with its own data directory, ports and port mapper: a context manager that ends all its processes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port, distribution, mapper = free_port(), free_port(), free_port()
        (directory / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        self.log = directory / "output"
        self._environment = {
            **os.environ,
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"perftest{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }

    def command(self) -> str:
        """Return a --start-command for this node; clients use `port`."""
        names = [name for name in self._environment if name.startswith(("RABBITMQ_", "ERL_EPMD_")) or name == "HOME"]
        given = self._environment | {"RABBITMQ_MNESIA_BASE": "{store_dir}"}
        settings = " ".join(f"{name}={given[name]}" for name in names)
        return f"env {settings} {_programs()[-1]}"

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(_programs()[-1])], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        end_s = time.monotonic() + _DEADLINE_S
        while not self._answers():
            assert self._process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < end_s, self.log.read_text()[-4000:]
            time.sleep(0.1)
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.end_mapper()

    def end_mapper(self) -> None:
        """End the port mapper, a daemon that outlives its node."""
        end_s = time.monotonic() + _DEADLINE_S
        while subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True).returncode:
            assert time.monotonic() < end_s  # epmd can be killed once it has detected the end of its node
            time.sleep(0.05)

    def _answers(self) -> bool:
        """Return whether the node answers the AMQP 1.0 protocol header."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5.0) as sock:
                sock.sendall(b"AMQP\x03\x01\x00\x00")
                return sock.recv(8) == b"AMQP\x03\x01\x00\x00"
        except OSError:
            return False

    def cpu_s(self) -> float:
        """Return the CPU time that the node has used so far."""
        total = 0
        for pid in [path for path in Path("/proc").iterdir() if path.name.isdigit()]:
            try:
                fields = (pid / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == self._process.pid:  # the session of the node
                total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")
