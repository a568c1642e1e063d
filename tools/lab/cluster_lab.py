"""A lab: N corosync daemons on one machine, each in a network namespace of its own, with fault injection.

    namespace NAME-K: eth0 (10.77.0.K) ==== pK on a bridge in namespace NAME-sw      K = 1..N

The network of the machine is not changed, and no daemon listens on it. A daemon has a private /run for its pid file;
its clients use abstract sockets, which are private to the namespace. A partition moves nodes to other bridges; a cut
drops all packets that one end of a wire sends.

All files of a lab are below its directory. A daemon belongs to the lab only while the kernel reports that its process
is corosync, run with the configuration in that directory. Requires root.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from ...base.disk.file_lock import lock_file
from ...base.errors import CairnError
from .cluster_lab_conf import MAX_NODES, LabOptions, address, corosync_conf

ROOT = Path("/var/lib/cairnmq-lab")
PACKAGES = "apt-get install corosync iproute2"
PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
FORMING_S = 180.0
CLONE_NEWNET = 0x40000000
_NAME = re.compile(r"[a-z][a-z0-9]{0,5}")


class LabError(CairnError):
    """The lab can't do what was asked, or can't be here at all."""


class NodeState(NamedTuple):
    """The state of one node."""

    node: int
    state: str
    """`quorate`, `not quorate`, `paused`, or `not running`."""
    pid: int | None = None
    votes: int | None = None
    """The number of nodes that it sees; None if it is not asked."""
    nodes: int = 0
    """The number of nodes of the lab."""

    def __str__(self) -> str:
        votes = "" if self.votes is None else f", sees {self.votes} of {self.nodes}"
        return f"node {self.node}: {self.state}{votes}" + (f", pid {self.pid}" if self.pid else "")


def unavailable_reason() -> str | None:
    """The reason why this machine can't have a lab; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root; run it as root"
    for program in ("corosync", "corosync-quorumtool", "ip", "tc"):
        if shutil.which(program, path=PATH) is None:
            return f"there is no {program} here; {PACKAGES}"
    probe = f"cairn{os.getpid()}"
    made = _run("ip", "netns", "add", probe)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    _run("ip", "netns", "del", probe)
    return None


def _stopped(pid: int) -> bool:
    """By a signal: some time after that was sent."""
    return re.search(r"^State:\s+T", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE) is not None


def _run(*command: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": PATH},
        stdin=subprocess.DEVNULL, timeout=timeout_s,
    )  # fmt: skip


class Lab:
    """One lab. Several with different names can coexist."""

    def __init__(self, name: str = "lab", root: Path = ROOT) -> None:
        if not _NAME.fullmatch(name):
            raise LabError(f"lab {name!r}", "a name is a letter and up to five letters and digits, all small")
        self.name = name
        self.directory = root / name
        self._switch = f"{name}-sw"

    # ---- as a whole -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `LabError` if this machine can't have a lab."""
        if reason := unavailable_reason():
            raise LabError(f"lab {self.name}", reason)

    def up(self, options: LabOptions) -> None:
        """Create the lab, and wait until all nodes form one cluster. Remains of an earlier lab are removed first."""
        self.check()
        if not 1 <= options.nodes <= MAX_NODES:
            raise LabError(f"lab {self.name}", f"{options.nodes} nodes, a lab has 1 to {MAX_NODES}", "correct --nodes")
        with self._lock():
            self._down()
            try:
                self._make(options)
                for node in self.nodes:
                    self._start(node)
                self.wait_complete()
            except BaseException:
                self._down()
                raise

    def wait_complete(self) -> None:
        """Until every node sees all of them."""
        for node in self.nodes:
            self.wait(lambda node=node: self._believes(node)[0] == len(self.nodes), "the cluster does not form")  # type: ignore[misc]

    def down(self) -> None:
        """Remove all of it; also what an interrupted `up` left."""
        if os.geteuid() != 0:
            raise LabError(f"lab {self.name}", "network namespaces need root", "run it as root")
        with self._lock():
            self._down()
        shutil.rmtree(self.directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.directory.parent.rmdir()

    @property
    def exists(self) -> bool:
        """Return whether there is a lab of this name, or what an interrupted `up` left of it."""
        return self.directory.exists()

    @property
    def nodes(self) -> range:
        return range(1, self.options.nodes + 1)

    @property
    def options(self) -> LabOptions:
        try:
            return LabOptions(**json.loads((self.directory / "options").read_text()))
        except FileNotFoundError:
            raise LabError(f"lab {self.name}", "it is not up", "cairnmq cluster-lab up 3") from None

    def status(self) -> list[NodeState]:
        """Return the state of each node."""
        return [self._state(node) for node in self.nodes]

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        self._end(self._known(node), signal.SIGKILL)

    def stop(self, node: int) -> None:
        """Stop the daemon of *node* as an administrator does: it leaves the cluster in an orderly way."""
        self._end(self._known(node), signal.SIGTERM)

    def start(self, node: int) -> None:
        if self.pid(self._known(node)):
            raise LabError(f"node {node}", "it runs already", f"cairnmq cluster-lab stop {node}")
        self._start(node)

    def pause(self, node: int) -> None:
        pid = self._running(node)
        os.kill(pid, signal.SIGSTOP)
        self.wait(lambda: _stopped(pid), f"node {node} does not stop")

    def resume(self, node: int) -> None:
        os.kill(self._running(node), signal.SIGCONT)

    def pid(self, node: int) -> int:
        """Return the process ID of the daemon of *node*; 0 if it does not run."""
        directory = self.directory / str(node)
        try:
            pid = int((directory / "pid").read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            program = os.readlink(f"/proc/{pid}/exe")
        except (OSError, ValueError):
            return 0
        ours = os.fsencode(directory / "corosync.conf") in arguments
        return pid if ours and program.split(" ")[0].endswith("/corosync") else 0

    def namespace(self, node: int) -> Path:
        """The file of its network namespace, for setns."""
        return Path("/run/netns") / f"{self.name}-{self._known(node)}"

    @contextlib.contextmanager
    def inside(self, node: int) -> Iterator[None]:
        """Move this thread to where it reaches the node's daemon; connections that it makes meanwhile stay there."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as home, open(self.namespace(node)) as there:
            if libc.setns(there.fileno(), CLONE_NEWNET):
                reason = f"its namespace can't be entered: {os.strerror(ctypes.get_errno())}"
                raise LabError(f"node {node}", reason, "run it as root")
            try:
                yield
            finally:
                if libc.setns(home.fileno(), CLONE_NEWNET):
                    os.abort()  # everything else of this process would be done in the wrong place

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """The command line that runs *command* where it can reach the node's daemon."""
        return [shutil.which("ip", path=PATH) or "ip", "netns", "exec", f"{self.name}-{self._known(node)}", *command]

    # ---- wires ------------------------------------------------------------------------------------------------------

    def partition(self, *sides: Iterable[int]) -> None:
        """Nodes reach those of their own side only; all that are not named are one more side."""
        named = [node for side in sides for node in side]
        if len(set(named)) != len(named):
            raise LabError(f"lab {self.name}", "a node is on one side of a partition, not on two", "name each once")
        for number, side in enumerate(sides, 1):
            if _run("ip", "-n", self._switch, "link", "show", f"br{number}").returncode:
                self._in_switch("link", "add", f"br{number}", "type", "bridge")
            self._in_switch("link", "set", f"br{number}", "up")
            for node in side:
                self._in_switch("link", "set", f"p{self._known(node)}", "master", f"br{number}")

    def cut(self, node: int, egress: bool = True) -> None:
        """Cut one direction: no node receives from *node*, or, if not *egress*, *node* receives nothing."""
        inside = self.command(node, ["tc", "qdisc", "replace", "dev", "eth0", "root", "blackhole"])
        outside = ["tc", "-n", self._switch, "qdisc", "replace", "dev", f"p{node}", "root", "blackhole"]
        self._do(*(inside if egress else outside))

    def heal(self) -> None:
        """All reach all."""
        for node in self.nodes:
            self._in_switch("link", "set", f"p{node}", "master", "br0")
            _run(*self.command(node, ["tc", "qdisc", "del", "dev", "eth0", "root"]))  # fails where nothing was cut
            _run("tc", "-n", self._switch, "qdisc", "del", "dev", f"p{node}", "root")

    # ---- how --------------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = FORMING_S) -> None:
        """LabError with the end of the logs if it does not become true."""
        end_s = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end_s:
                raise LabError(f"lab {self.name}", f"{what} within {seconds:.0f} s", self._last_words())
            time.sleep(0.05)

    def _make(self, options: LabOptions) -> None:
        key_file = self.directory / "authkey"
        key_file.touch(mode=0o600)
        key_file.write_bytes(secrets.token_bytes(256))
        (self.directory / "options").write_text(json.dumps(asdict(options)))
        self._do("ip", "netns", "add", self._switch)
        self._in_switch("link", "add", "br0", "type", "bridge")
        self._in_switch("link", "set", "br0", "up")
        for node in range(1, options.nodes + 1):
            directory = self.directory / str(node)
            (directory / "run").mkdir(parents=True)
            (directory / "corosync.conf").write_text(corosync_conf(options, str(directory), str(key_file)))
            space = f"{self.name}-{node}"
            self._do("ip", "netns", "add", space)
            self._in_switch("link", "add", f"p{node}", "type", "veth", "peer", "name", "eth0", "netns", space)
            self._in_switch("link", "set", f"p{node}", "mtu", str(options.mtu), "master", "br0", "up")
            self._do("ip", "-n", space, "link", "set", "eth0", "mtu", str(options.mtu))
            self._do("ip", "-n", space, "link", "set", "lo", "up")
            self._do("ip", "-n", space, "addr", "add", f"{address(node)}/24", "dev", "eth0")
            self._do("ip", "-n", space, "link", "set", "eth0", "up")

    def _start(self, node: int) -> None:
        directory = self.directory / str(node)
        (directory / "run" / "corosync.pid").unlink(missing_ok=True)
        script = 'mount --bind "$0/run" /run && exec corosync -f -c "$0/corosync.conf"'
        with (directory / "stderr").open("wb") as errors:
            begun = subprocess.Popen(
                self.command(node, ["sh", "-c", script, str(directory)]),
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True,
                env={**os.environ, "PATH": PATH},
            )  # fmt: skip
        (directory / "pid").write_text(str(begun.pid))

        def answers() -> bool:
            if begun.poll() is not None:
                raise LabError(f"node {node}", "corosync ends at once", self._last_words())
            return self.pid(node) > 0 and self._believes(node)[0] > 0

        self.wait(answers, f"node {node} does not answer")

    def _end(self, node: int, number: int) -> None:
        pid = self.pid(node)
        if not pid:
            return
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
        with contextlib.suppress(LabError):
            self.wait(lambda: not self.pid(node), "it continues to run", 10.0)
        if self.pid(node):
            os.kill(pid, signal.SIGKILL)
            self.wait(lambda: not self.pid(node), f"node {node} can't be ended")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        (self.directory / str(node) / "pid").unlink(missing_ok=True)
        for left in (*Path("/dev/shm").glob(f"qb-{pid}-*"), *Path("/dev/shm").glob(f"qb-corosync-{pid}-*")):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)

    def _down(self) -> None:
        for directory in self.directory.glob("[0-9]*"):
            self._end(int(directory.name), signal.SIGKILL)
        ours = re.compile(rf"{self.name}-(\d+|sw)")
        for line in _run("ip", "netns", "list").stdout.splitlines():
            space = line.split()[0] if line.split() else ""
            if ours.fullmatch(space):
                _run("ip", "netns", "del", space)
        for path in self.directory.iterdir() if self.directory.exists() else ():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != "lock":
                path.unlink()

    def _believes(self, node: int) -> tuple[int, bool]:
        """The number of votes that it counts, and whether that is a quorum."""
        try:
            reported = _run(*self.command(node, ["corosync-quorumtool", "-s"]), timeout_s=5.0).stdout
        except subprocess.TimeoutExpired:
            return 0, False
        votes = re.search(r"^Total votes:\s+(\d+)", reported, re.MULTILINE)
        return int(votes[1]) if votes else 0, bool(re.search(r"^Quorate:\s+Yes", reported, re.MULTILINE))

    def _state(self, node: int) -> NodeState:
        pid, nodes = self.pid(node), self.options.nodes
        if not pid:
            return NodeState(node, "not running", nodes=nodes)
        if _stopped(pid):
            return NodeState(node, "paused", pid, nodes=nodes)
        votes, quorate = self._believes(node)
        return NodeState(node, "quorate" if quorate else "not quorate", pid, votes, nodes)

    def _last_words(self) -> str:
        logs = [path for name in ("stderr", "corosync.log") for path in sorted(self.directory.glob(f"*/{name}"))]
        lines = [line for path in logs for line in path.read_text(errors="replace").splitlines()[-2:]]
        return f"the logs end with: {' | '.join(lines)[:1000]}"

    def _known(self, node: int) -> int:
        if node not in self.nodes:
            raise LabError(f"lab {self.name}", f"it has no node {node}, but 1 to {self.options.nodes}")
        return node

    def _running(self, node: int) -> int:
        pid = self.pid(self._known(node))
        if not pid:
            raise LabError(f"node {node}", "its daemon does not run", f"cairnmq cluster-lab start {node}")
        return pid

    def _in_switch(self, *command: str) -> None:
        self._do("ip", "-n", self._switch, *command)

    def _do(self, *command: str) -> None:
        done = _run(*command)
        if done.returncode:
            raise LabError(f"lab {self.name}", f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """One command at a time makes or removes a lab."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = lock_file(str(self.directory / "lock"))
        if lock is None:
            raise LabError(f"lab {self.name}", "another command is making or removing it", "wait for it")
        with contextlib.closing(lock):
            yield
