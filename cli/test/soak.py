"""`cairnmq perftest --soak`: options of the durability soak, and what it prints."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...base.errors import CairnError
from ...base.texts import counted
from ...tools.lab.disks import MIB, Disk, FileSystem, unavailable_reason
from ...tools.lab.kernel import in_private_mounts
from ...tools.soak.plot import check_png, in_terminal, write_png
from ...tools.soak.servers import Commands, Server, free_port
from ...tools.soak.soak import Soak, SoakResult, Ways
from ...tools.soak.wire import Settings
from ..common.csv_rows import print_object, without_lists
from ..common.local_directory import LocalDirectory
from ..common.output import OutputConsole, printable
from ..common.signals import status_of, terminable
from ..common.units import Duration, host_port
from ..options.subjects import option, several
from .perftest_screen import WIDTH_IN_PIPES, check_writable, put, write_out

SOAK = "Soak"
_DISK_BYTES = 512 * MIB
_QUIET_S = 2.0
_MAIN = "from cairnmq.cli.main import main; main()"
DEFAULTS = {"npubs": 2, "nsubs": 2, "qt": 3, "size": 20_000, "rate_per_s": 1000.0}
"""The defaults of options whose default differs for a load."""


class SoakOptions(NamedTuple):
    """The options of a soak."""

    seconds: float
    kill_every_s: float
    power_cut: bool
    store_dir: str | None
    broker_options: str
    start_command: str | None
    kill_command: str
    stop_command: str
    ready_address: str | None
    seed: str | None
    work_dir: str | None
    plot: str | None


soak_options = several(
    option(SOAK, "--soak", "seconds", type=Duration(1), help="Start a broker, kill it repeatedly for this time "
           "(10m), and check its messages. Also uses --npubs --nsubs --qt --size --rate --tx."),
    option(SOAK, "--kill-every", "kill_every_s", type=Duration(1), default="5s", show_default=True,
           help="The average time between kills."),
    option(SOAK, "--power-cut", is_flag=True, help="Simulate power cuts, too (ext4 on a loop device, as root)."),
    option(SOAK, "--store-dir", type=LocalDirectory(file_okay=False), help="The store.  [default: temporary]"),
    option(SOAK, "--broker-options", default="", metavar="TEXT", help="Additional options of `cairnmq broker`."),
    option(SOAK, "--start-command", metavar="TEMPLATE",
           help="Shell command of another broker, in the foreground; {store_dir} and {port} are replaced."),
    option(SOAK, "--kill-command", default="", metavar="TEMPLATE", help="Kill the broker.  [default: SIGKILL]"),
    option(SOAK, "--stop-command", default="", metavar="TEMPLATE", help="Stop the broker.  [default: SIGTERM]"),
    option(SOAK, "--ready-address", metavar="HOST:PORT", help="Address of the broker.  [default: a free port]"),
    option(SOAK, "--seed", help="The seed of random decisions."),
    option(SOAK, "--work-dir", type=click.Path(exists=True, file_okay=False), help="The directory for histories."),
    option(SOAK, "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw log size and live bytes."),
)  # fmt: skip


def soak(
    given: SoakOptions, load: dict[str, Any], user: str | None, password: str, output_format: str, output: str | None
) -> int:
    """Run it and print the verdict; the exit status."""
    _check(given, load)
    seed = given.seed or str(SystemRandom().randrange(10**6))
    ours = given.start_command is None
    host, port = _address(given.ready_address)
    settings = Settings(
        "", f"{load['base_name']}-", seed, "", [f"{load['base_name']}{number}" for number in range(load["qt"])],
        host, user or "", password, load["queue_address"], not ours, True, load["tx"], load["rate_per_s"], load["size"],
        0.0 if ours else _QUIET_S,
    )  # fmt: skip
    ways = Ways(given.seconds, given.kill_every_s, seed, settings, load["npubs"], load["nsubs"])
    screen = _Screen(ways, output_format)
    found: list[SoakResult] = []
    failures: list[BaseException] = []
    soaks: list[Soak] = []
    ended = threading.Event()  # Ctrl-C during a join would have Python believe that the thread has ended

    def work() -> None:
        try:
            with ExitStack() as stack:
                work_dir = Path(tempfile.mkdtemp(prefix="perftest-", dir=given.work_dir))
                power, store = _place(given, work_dir, stack)
                commands = Commands(given.start_command or _our_command(given), given.kill_command, given.stop_command)
                server = Server(commands, store, host, port, work_dir / "broker.log")
                one = Soak(ways, server, work_dir, power, screen.look)
                soaks.append(one)
                found.append(one.run())
            if found[0].has_passed:
                shutil.rmtree(work_dir, ignore_errors=True)
            else:
                screen.kept = str(work_dir)
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=in_private_mounts(work) if given.power_cut else work)
    interrupted = 0
    with screen, terminable():
        thread.start()
        while not ended.is_set():
            try:
                for one in soaks if interrupted else ():
                    one.stop()
                ended.wait(0.2)
            except KeyboardInterrupt as error:  # the broker has to end before this does
                interrupted = interrupted or status_of(error)
    thread.join()
    if failures:
        raise failures[0]
    [result] = found
    with ExitStack() as last:  # each is done, whatever becomes of the others
        if given.plot is not None:
            last.callback(write_png, result, given.plot)
        if output is not None:
            last.callback(write_out, output, result.as_json())
        screen.result(result)
    return 1 if not result.has_passed else interrupted or (1 if result.stopped_by else 0)


def _address(ready_address: str | None) -> tuple[str, int]:
    """The host and the port that the broker listens on."""
    if ready_address is None:
        return "127.0.0.1", free_port()
    try:
        return host_port("--ready-address", ready_address)
    except CairnError as error:
        raise click.UsageError(str(error)) from error


def _check(given: SoakOptions, load: dict[str, Any]) -> None:
    """Raises `click.UsageError`, so that the exit status is 2."""
    if not load["durable"]:
        raise click.UsageError("--soak needs durable messages: use --durable yes")
    if not load["npubs"] or not load["nsubs"]:
        raise click.UsageError("--soak takes at least one publisher and one subscriber")
    if given.power_cut and given.start_command is None and (reason := unavailable_reason("ext4")):
        raise click.UsageError(f"--power-cut: {reason}")
    if given.power_cut and given.store_dir is not None:
        raise click.UsageError("--power-cut makes a file system of its own: leave out --store-dir")
    _check_commands(given)
    _check_places(given)
    if given.plot is not None:
        try:
            check_png(given.plot)
        except CairnError as error:
            raise click.UsageError(str(error)) from error
        check_writable("--plot", given.plot)


def _check_commands(given: SoakOptions) -> None:
    for name, template in (
        ("--start-command", given.start_command or ""), ("--kill-command", given.kill_command),
        ("--stop-command", given.stop_command),
    ):  # fmt: skip
        try:
            template.format(store_dir="", port=0)
        except (KeyError, IndexError, ValueError):
            raise click.UsageError(f"{name} has braces besides {{store_dir}} and {{port}}; double them") from None
    if given.start_command is None and given.ready_address is not None:
        raise click.UsageError("--ready-address is for brokers of a --start-command")


def _check_places(given: SoakOptions) -> None:
    store = Path(given.store_dir) if given.store_dir is not None else None
    if store is not None and store.exists() and any(store.iterdir()):
        raise click.UsageError(f"--store-dir {store} is not empty; name a new or empty directory")
    for name, place in (("--work-dir", given.work_dir), ("--store-dir", given.store_dir)):
        try:
            if place is not None:
                os.makedirs(place, exist_ok=True)
                tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            raise click.UsageError(f"{name} {place}: it can't be written: {error.strerror}; name another") from error


def _our_command(given: SoakOptions) -> str:
    options = given.broker_options.replace("{", "{{").replace("}", "}}")
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(_MAIN)}"
    return f"{program} broker --port {{port}} --store-dir {{store_dir}} {options}"


def _place(given: SoakOptions, work_dir: Path, stack: ExitStack) -> tuple[FileSystem | None, Path]:
    """The disk of the store, if its power can be cut, and the store's directory."""
    if not given.power_cut:
        store = Path(given.store_dir).absolute() if given.store_dir is not None else work_dir / "store"
        store.mkdir(parents=True, exist_ok=True)
        return None, store
    power = FileSystem("ext4", Disk(_DISK_BYTES))
    stack.callback(power.close)
    power.mount()
    return power, power.place / "store"


class _Screen:
    """The screen of a soak: its progress on standard error, and the result."""

    def __init__(self, ways: Ways, output_format: str) -> None:
        self.kept = ""
        self._ways = ways
        self._output_format = output_format
        self._live = Live("", console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._is_live = sys.stderr.isatty()

    def __enter__(self) -> None:
        if self._is_live:
            self._live.start()

    def __exit__(self, *error: object) -> None:
        if self._is_live:
            self._live.stop()

    def look(self, found: SoakResult) -> None:
        if self._is_live:
            counts = found.verdict.counts()
            confirmed = found.samples[-1].confirmed if found.samples else 0
            wrong = ", ".join(f"{number} {name}" for name, number in counts.items()) or "nothing wrong so far"
            kills = found.kills["running"] + found.kills["recovering"]
            when = f"{found.seconds:.0f} of {self._ways.seconds:.0f} s"
            messages = counted(confirmed, "message", spec=",")
            self._live.update(Text(f"{when}, {counted(kills, 'kill')}, {messages} confirmed: {wrong}"))

    def result(self, found: SoakResult) -> None:
        if self._output_format == "json":
            put(lambda: print(json.dumps(found.as_json(), indent=2)))
        elif self._output_format == "csv":
            put(lambda: print_object(without_lists(found.as_json())))
        else:
            put(lambda: self._tell(found))

    def _tell(self, found: SoakResult) -> None:
        console = OutputConsole(width=None if sys.stdout.isatty() else WIDTH_IN_PIPES)
        chart = in_terminal(found, console.width)
        if chart:
            print(chart)
        for story in found.stories:
            print("\n".join(map(printable, story.split("\n"))))
        for text in sorted({trouble.text for trouble in found.verdict.troubles})[:5]:
            print(f"the broker said: {printable(text)}")
        if found.unchecked:
            print("the last histories are incomplete: losses in them are unknown")
        if self.kept:
            print(f"histories and the broker's output: {self.kept}")
        print(printable(found.line()))
