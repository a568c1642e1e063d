"""A minimal Debian system in a directory, made by debootstrap, with the host's configuration of apt and pip.

The base system is kept as a tar file in the cache directory, one for each release. Downloads are shared with the
host's pip; wheels that pip builds are not, unless a command asks for it with `HOST_PIP_CACHE`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from .sandbox import COMMAND_S, NAMESPACES, Sandbox

ROOT = Path(__file__).parents[2]
_HOST_CACHES = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
CACHE = _HOST_CACHES / "cairnmq-tests"
SANDBOXES = CACHE / "sandboxes"
CHECKOUT = "/root/cairnmq"
_TOOLS = ("debootstrap", "unshare", "nsenter", "chroot", "tar", "ip")
_NOT_POSSIBLE = re.compile(
    "Failed getting release file|Temporary failure|Could not (resolve|connect)|mounted with noexec or nodev"
    "|Operation not permitted"
)
_PASSED_ON = re.compile(r"PIP_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|(?i:(https?|no|all)_proxy)")
_COPIED = (
    "/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf",
    "/etc/xdg/pip/pip.conf", "/root/.config/pip/pip.conf", "/root/.pip/pip.conf", "/usr/local/share/ca-certificates",
)  # fmt: skip
_PIP_CACHE = "/var/cache/pip"
HOST_PIP_CACHE = "/var/cache/pip-of-host"
"""Value of PIP_CACHE_DIR in the system for the complete cache of the host's pip, including wheels that it built."""
_SUDO = '#!/bin/sh\nexec "$@"\n'


class Unavailable(Exception):
    """Error: the Debian archive cannot be reached, or this host does not permit debootstrap's operations."""


def reason_against() -> str | None:
    """Return the reason why this host cannot create a system, or None if no reason is known."""
    if os.geteuid() != 0:
        return "debootstrap and chroot need root"
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run([*NAMESPACES, "unshare", "--net", "true"], capture_output=True, text=True)
    return f"no namespaces for mounts and processes: {tried.stderr.strip()}" if tried.returncode else None


def mirror() -> str:
    """Return the Debian archive that the host uses; raise `Unavailable` if its configuration names none."""
    for path in (*Path("/etc/apt/sources.list.d").glob("*.sources"), Path("/etc/apt/sources.list")):
        text = path.read_text() if path.exists() else ""
        found = re.search(r"^(?:URIs:|deb(?: \[[^\]]*\])?)\s*(https?://\S+/debian)/?(?:\s|$)", text, re.M)
        if found:
            return found[1]
    raise Unavailable("the host's apt configuration names no Debian archive")


def passed_on() -> dict[str, str]:
    """Return the host's environment variables that are needed to reach the Debian archive and the package index."""
    return {key: value for key, value in os.environ.items() if _PASSED_ON.fullmatch(key)}


def copied_files() -> list[str]:
    """Return the host's files and directories that are needed to reach the Debian archive and the package index."""
    environment = passed_on()
    named = [environment.get(key, "") for key in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    of_apt = [
        str(path) for path in Path("/etc/apt/apt.conf.d").iterdir() if "Acquire::" in path.read_text(errors="replace")
    ]
    return [name for name in dict.fromkeys((*_COPIED, *named, *of_apt)) if name and Path(name).exists()]


def base(release: str) -> Path:
    """Return the tar file of a minimal system, created if missing; raise `Unavailable` if that is not possible."""
    kept = CACHE / f"debian-{release}.tar"
    if kept.exists():
        return kept
    sandbox = Sandbox(SANDBOXES, f"base-{release}")
    try:
        packed = sandbox.place / "root.tar"
        command = sandbox.command("debootstrap", "--variant=minbase", release, str(sandbox.inner), mirror())
        made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_S)
        if made.returncode:
            end = made.stdout[-2000:]
            raise Unavailable(end) if _NOT_POSSIBLE.search(end) else AssertionError(end)
        for package in (sandbox.root / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        sandbox.run("tar", "--one-file-system", "-cf", str(packed), "-C", str(sandbox.inner), ".")
        packed.rename(kept)
    finally:
        sandbox.close()
    return kept


class Machine:
    """A minimal Debian system; commands run as root in the checkout."""

    def __init__(self, release: str) -> None:
        """Create the system; raise `Unavailable` if that is not possible."""
        kept = base(release)
        self._sandbox = Sandbox(SANDBOXES, release)
        try:
            self.place = self._sandbox.root
            """Root directory, as a path of the host."""
            self._sandbox.run("tar", "-xf", str(kept), "-C", str(self._sandbox.inner))
            self._environment = passed_on() | {
                "HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "PIP_CACHE_DIR": _PIP_CACHE,
            }  # fmt: skip
            self._configure()
            self._copy_checkout()
            self._mount()
        except BaseException:
            self.close()
            raise

    @property
    def root(self) -> Path:
        """Return the root directory as a path in the namespaces."""
        return self._sandbox.inner

    def command(self, *words: str) -> list[str]:
        """Return a command that runs *words* in the namespaces with the host's root directory."""
        return self._sandbox.command(*words)

    def close(self) -> None:
        """End the system's processes, and remove it."""
        self._sandbox.close()

    def run(self, script: str, *, online: bool = False, **environment: str) -> str:
        """Run a shell script that must succeed, with a loopback interface only unless *online*; return its output."""
        there = shlex.join(["chroot", str(self._sandbox.inner), "sh", "-ec", f"cd {CHECKOUT}\n{script}"])
        words = [] if online else ["unshare", "--net"]
        words += ["sh", "-ec", there if online else f"ip link set lo up; {there}"]
        done = subprocess.run(
            self._sandbox.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=COMMAND_S, env=self._environment | environment,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout[-6000:]}"
        return done.stdout

    def _configure(self) -> None:
        for name in copied_files():
            if Path(name).is_dir():
                shutil.copytree(name, f"{self.place}{name}", dirs_exist_ok=True)
            else:
                there = Path(f"{self.place}{name}")
                there.parent.mkdir(parents=True, exist_ok=True)
                there.unlink(missing_ok=True)
                shutil.copy(name, there)
        sudo = self.place / "usr/local/bin/sudo"  # a minimal Debian has no sudo, and root needs none
        sudo.write_text(_SUDO)
        sudo.chmod(0o755)

    def _copy_checkout(self) -> None:
        listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in filter(None, names):
            here, there = ROOT / name, Path(f"{self.place}{CHECKOUT}/{name}")
            there.parent.mkdir(parents=True, exist_ok=True)
            if here.is_symlink():
                there.symlink_to(os.readlink(here))
            elif here.exists():  # else it was removed, which is not committed yet
                shutil.copy(here, there)

    def _mount(self) -> None:
        of_host = Path(os.environ.get("PIP_CACHE_DIR") or _HOST_CACHES / "pip")
        shared = [(str(of_host), HOST_PIP_CACHE)]
        shared += [(str(of_host / name), f"{_PIP_CACHE}/{name}") for name in ("http", "http-v2")]  # no built wheels
        links = self._environment.get("PIP_FIND_LINKS", "").split()
        shared += [(name, name) for name in links if Path(name).is_dir()]
        root = self._sandbox.inner
        self._sandbox.run("mount", "-t", "proc", "proc", f"{root}/proc")
        self._sandbox.run("mount", "--rbind", "/dev", f"{root}/dev")
        # systemd deletes the files there of a service's user, whose ID is that of another user on the host
        self._sandbox.run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}/dev/shm")
        for here, there in shared:
            Path(here).mkdir(parents=True, exist_ok=True)
            Path(f"{self.place}{there}").mkdir(parents=True, exist_ok=True)
            self._sandbox.run("mount", "--bind", here, f"{root}{there}")


class Stopwatch:
    """Seconds of each step of a walk, in the order of the first laps."""

    def __init__(self, before: Stopwatch | None = None) -> None:
        """Start with the steps of *before*, if given."""
        self._begun_s = time.monotonic()
        self._seconds: dict[str, float] = dict(before._seconds) if before else {}

    def lap(self, name: str) -> None:
        """Add the time since the previous lap to the step *name*."""
        now_s = time.monotonic()
        self._seconds[name] = self._seconds.get(name, 0.0) + now_s - self._begun_s
        self._begun_s = now_s

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self._seconds.items())
        return f"{steps}; {sum(self._seconds.values()):.0f} s in total"
