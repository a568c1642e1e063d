"""Tests of lazy imports: a command imports its modules when it is called, so that the program starts fast."""

from __future__ import annotations

import resource
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median

import click
import pytest

from cairnmq.cli.main import COMMANDS, cairnmq
from tests.conftest import Tell
from tests.harness.process import CAIRNMQ, DEADLINE_S

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

CHEAP = [["--version"], ["--help"], ["ctl", "--help"], ["users", "--help"], ["completion", "bash"]]
HEAVY = [
    "numpy", "rich", "proton", "asyncio", "sqlalchemy", "duckdb", "pyarrow", "pyspark",
    "cairnmq.broker", "cairnmq.store", "cairnmq.tools",
]  # fmt: skip
CHEAPEST = CHEAP[:3]
SLOW_TO_IMPORT = {"importlib.metadata", "difflib", "csv", "json", "socket", "cairnmq.amqp"}
"""Modules that take milliseconds to import, and that version and help do not need."""
MOST_CPU_S = 0.15
"""Maximum CPU time of a start on an idle machine. The test permits four times as much, as it runs beside others."""


def imported_by(*arguments: str) -> set[str]:
    program = "import sys\nfrom cairnmq.cli.main import cairnmq\n"
    program += f"cairnmq({list(arguments)!r}, standalone_mode=False)\nprint('imported', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_found(name: str) -> None:
    command = cairnmq.get_command(click.Context(cairnmq), name)
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize("arguments", CHEAP, ids=" ".join)
def test_a_start_imports_little(arguments: list[str]) -> None:
    assert imported_by(*arguments) & set(HEAVY) == set()


@pytest.mark.parametrize("arguments", CHEAPEST, ids=" ".join)
def test_version_and_help_import_no_module_for_output_or_networks(arguments: list[str]) -> None:
    assert imported_by(*arguments) & SLOW_TO_IMPORT == set()


@pytest.mark.parametrize("arguments", [["--version"], ["ctl", "--help"]], ids=" ".join)
def test_start_takes_little_cpu(arguments: list[str], tell: Tell) -> None:
    """The minimum CPU time of ten starts is small; the load of other processes affects the other starts."""
    taken = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([CAIRNMQ, *arguments], capture_output=True, timeout=DEADLINE_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    tell(f"cairnmq {' '.join(arguments)}: {min(taken) * 1000:.0f} ms of CPU, median {median(taken) * 1000:.0f}")
    assert min(taken) < 4 * MOST_CPU_S


def test_commands_share_the_options_of_the_connection() -> None:
    ctl = cairnmq.get_command(click.Context(cairnmq), "ctl")
    assert isinstance(ctl, click.Group)
    groups = [one for one in ctl.commands.values() if isinstance(one, click.Group)]
    commands = [ctl, *ctl.commands.values(), *(below for one in groups for below in one.commands.values())]
    for name in ("url", "ca", "timeout_s", "color"):
        found = [param for command in commands for param in command.params if param.name == name]
        assert len(found) == len(commands) > 20
        assert len({id(param) for param in found}) == 1, "making an option costs time"


def test_an_unknown_command_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from cairnmq.cli.main import main; main()", "brokr"],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert "No such command 'brokr'. Did you mean 'broker'?" in done.stderr


@pytest.mark.parametrize("disposition", ["default_int_handler", "SIG_IGN"])
@pytest.mark.parametrize("module", ["cairnmq.cli.main", "click", "rich.console", "cairnmq.cli.store.verify"])
def test_ctrl_c_before_the_command_exits_with_130_unless_it_is_ignored(module: str, disposition: str) -> None:
    """Ctrl-C during the imports of the installed script ends it, also if an import catches every exception."""
    place, _, function = PROJECT["scripts"]["cairnmq"].partition(":")
    program = (
        "import contextlib, os, signal, sys\n"
        f"signal.signal(signal.SIGINT, signal.{disposition})\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            with contextlib.suppress(BaseException):\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "                for _ in range(1000): pass\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        f"from {place} import {function}\n"
        f"{function}()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "verify", "--help"], capture_output=True, text=True, timeout=DEADLINE_S
    )
    if disposition == "SIG_IGN":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "cairnmq: interrupted\n")


@pytest.mark.parametrize("arguments", [["verify", "x"], ["verify", "--help"]], ids=" ".join)
def test_ctrl_c_while_a_command_is_imported_has_a_status_of_its_own(arguments: list[str]) -> None:
    """Ctrl-C during an import causes status 130, and not 1, which means that a problem was found."""
    program = (
        "import os, signal, sys\n"
        "from cairnmq.cli.main import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background processes of a shell ignore it
        "class Interrupts:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'cairnmq.cli.store.verify':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "cairnmq: interrupted\n")
