"""Podman in separate namespaces, with which images, containers and their processes are removed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from ..fresh_machine.machine import SANDBOXES, Unavailable, base, copied_files, passed_on, reason_against
from ..fresh_machine.sandbox import COMMAND_S, Sandbox
from .conftest import ROOT

TOOLS = ("podman", "crun")
BARE, BASE = "localhost/debian:bare", "localhost/debian:configured"
_PREPARE = """
mount -t proc proc /proc
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/containers /etc/cni/net.d
mount --bind "$1" /var/lib/containers
mount -t tmpfs tmpfs /etc/cni/net.d
"""
"""Script that mounts only version 2 of cgroups, as crun refuses both, and an empty directory for networks."""
PODMAN = ("podman", "--runtime", "crun", "--cgroup-manager", "cgroupfs", "--events-backend", "none")
_MADE_BY_PODMAN = ("/etc/hosts", "/etc/resolv.conf")
_ENGINE = f"""#!/bin/sh
verb=$1
shift
case $verb in
build) set -- --format docker --isolation chroot --network host --ulimit nofile=1024:1024 \\
    --build-arg BASE={BASE} {shlex.join(f"--env={name}={value}" for name, value in passed_on().items())} "$@" ;;
run|create) set -- --log-driver k8s-file --cgroups disabled --ulimit nofile=1024:1024 \\
    --ulimit nproc=4096:4096 "$@" ;;
esac
exec {shlex.join(PODMAN)} "$verb" "$@"
"""
"""Script that adds options for a host without own cgroups and for access to the Debian archive and package index."""
_DOCKER = """
sudo() { "$@"; }
docker() {
    verb=$1
    shift
    case $verb in
    compose) podman-compose --podman-path "$ENGINE" --in-pod false "$@" ;;
    run) "$ENGINE" run --network host "$@" ;;
    *) "$ENGINE" "$verb" "$@" ;;
    esac
}
"""


def reason_against_containers() -> str | None:
    """Return the reason why this host cannot run containers, or None if no reason is known."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else reason_against()


class Containers:
    """A container engine with a Debian image."""

    def __init__(self) -> None:
        """Create the engine and the image; raise `Unavailable` if that is not possible."""
        system = base("bookworm")
        self._sandbox = Sandbox(SANDBOXES, "containers")
        self._engine = self._sandbox.place / "engine"
        try:
            self._start_engine(system)
            self._engine.write_text(_ENGINE)
            self._engine.chmod(0o700)
            context = self._sandbox.place / "configured"
            context.mkdir()
            (context / "Dockerfile").write_text(f"FROM {BARE}\nADD files.tar /\n")
            names = [name.removeprefix("/") for name in copied_files() if name not in _MADE_BY_PODMAN]
            self._sandbox.run("tar", "-chf", str(context / "files.tar"), "-C", "/", "--", *names)
            self._sandbox.run(*PODMAN, "build", "--quiet", "--format", "docker", "--tag", BASE, str(context))
        except BaseException:
            self._sandbox.close()
            raise

    def _start_engine(self, system: Path) -> None:
        """Run a first container from the archive *system*; raise `Unavailable` if that fails."""
        try:
            self._sandbox.run("sh", "-ec", _PREPARE, "sh", str(self._sandbox.inner))
            self._sandbox.run(*PODMAN, "import", "--quiet", str(system), BARE)
            self._sandbox.run(
                *PODMAN, "run", "--rm", "--network", "host", "--cgroups", "disabled", "--log-driver", "none",
                "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", BARE, "true",
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            command = shlex.join([part for part in error.cmd if len(part) < 80])
            raise Unavailable(f"{command} ended with status {error.returncode}") from error

    def __enter__(self) -> Containers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sandbox.close()

    def run(self, script: str, place: Path = ROOT, *, online: bool = False, programs: Path | None = None) -> str:
        """Run a shell script of the host in the directory *place* with Podman as `docker`; return its output.

        *programs*: a directory with `podman-compose`. Unless *online*, the script has only a loopback interface,
        which its containers share.
        """
        words = [] if online else ["unshare", "--net"]
        begin = "true" if online else "ip link set lo up"
        text = "\n".join((_DOCKER, begin, f"cd {shlex.quote(str(place))}", script))
        path = ":".join(str(one) for one in (Path(sys.executable).parent, programs) if one is not None)
        done = subprocess.run(
            self._sandbox.command(*words, "sh", "-ec", text), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=COMMAND_S,
            env={**os.environ, "ENGINE": str(self._engine), "PATH": f"{path}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout[-6000:]}"
        return done.stdout
