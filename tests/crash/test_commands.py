"""Tests that a crash during a command that writes loses no data, and that the command can be repeated.

Each command is recorded once. In a selection of the states after kills and power cuts, it is run again, with the
remedy from its error text if there is one, and its result is compared with the expected one.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, Credentials, prove
from cairnmq.base.errors import CairnError, ForeignStore
from cairnmq.cli.main import cairnmq
from cairnmq.store import open_store
from tests.harness.export.tables import expected, rows_in
from tests.harness.thorough import amount

from . import recording
from .crash_states import Recorded, State, distinct
from .founding import MESSAGES, QUEUE, content_of, found, options_of
from .recording import Change, Kind, record

DAMAGED = 3
"""The exit status of a salvage that may have lost something."""
STATES = amount("CAIRN_COMMAND_STATES", 12, 6)
"""The number of states for each command and kind of crash."""
CONTENTS = [content_of(number) for number in range(MESSAGES)]
ITERATIONS = "--iterations", str(FEWEST_ITERATIONS)
pytestmark = pytest.mark.skipif(recording.missing_reason() is not None, reason=recording.missing_reason() or "")


class Answer(NamedTuple):
    """The exit status and output of a command."""

    status: int
    output: str


def run(*arguments: str | Path, password: str = "") -> Answer:
    """Run the `cairnmq` command in this process, with *password* as its standard input."""
    done = CliRunner().invoke(cairnmq, list(map(str, arguments)), input=password)
    if isinstance(done.exception, CairnError):
        return Answer(1, str(done.exception))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Answer(done.exit_code, done.output)


def contents(store: Path) -> list[bytes]:
    with open_store(str(store), "journal", options_of()) as opened:
        return list(opened.queue(QUEUE).peek())


def run_again(root: Path, *arguments: str | Path) -> None:
    """Run a command again after a crash; if it refuses what the crash left, its error names what to remove."""
    answer = run(*arguments)
    if answer.status not in (0, DAMAGED):
        named = [path for path in root.iterdir() if str(path) in answer.output and path.name.startswith("target")]
        assert len(named) == 1, f"no single place to be removed in: {answer}"
        assert "remove" in answer.output, answer
        shutil.rmtree(named[0])
        answer = run(*arguments)
    assert answer.status in (0, DAMAGED), answer


# ---- the commands -----------------------------------------------------------------------------------------------


class Command:
    """A command that writes `target`: its preparation and the properties after a crash.

    The usual property: `target` has its name only if it is complete; otherwise the command can be run again.
    """

    name = ""
    password = ""
    """The standard input of the command."""
    fewest_kills = 6
    """The minimum number of distinct states after kills."""
    is_synced = True
    """True if the command syncs its files, so that its states after power cuts are explored, too."""

    def prepare(self, root: Path) -> None:
        """Create the input of the command in the directory *root*."""
        found("journal", str(root / "store"))

    def arguments(self, root: Path) -> list[str | Path]:
        raise NotImplementedError

    def check(self, root: Path) -> None:
        """Run the command again if it is not done, and check its result. Raises `AssertionError`, `CairnError`."""
        if not (root / "target").exists():
            run_again(root, *self.arguments(root))
        assert contents(root / "target") == CONTENTS


class Backup(Command):
    name = "backup"

    def arguments(self, root: Path) -> list[str | Path]:
        return ["backup", root / "store", root / "target"]

    def check(self, root: Path) -> None:
        if not (root / "target").exists():
            run_again(root, *self.arguments(root))
        assert run("restore", root / "target", root / "restored").status == 0
        assert contents(root / "restored") == CONTENTS
        assert contents(root / "store") == CONTENTS


class Restore(Command):
    name = "restore"

    def prepare(self, root: Path) -> None:
        found("journal", str(root / "store"))
        assert run("backup", root / "store", root / "backup").status == 0
        shutil.rmtree(root / "store")

    def arguments(self, root: Path) -> list[str | Path]:
        return ["restore", root / "backup", root / "target"]


    def check(self, root: Path) -> None:
        """Check that an unfinished restore is not replaced: a broker refuses to create an empty store there."""
        target, partial = root / "target", root / "target.restoring"
        if partial.exists():
            assert not target.exists()
            for kind in ("journal", "sql"):
                with pytest.raises(ForeignStore, match=r"not finished.*run the restore again"):
                    open_store(str(target), kind)
            assert not target.exists()
        super().check(root)


class Load(Command):
    name = "load"

    def prepare(self, root: Path) -> None:
        found("journal", str(root / "store"))
        (root / "dump").write_text(run("dump", "--complete", root / "store").output)
        shutil.rmtree(root / "store")

    def arguments(self, root: Path) -> list[str | Path]:
        return ["load", root / "target", root / "dump"]


class Salvage(Command):
    name = "salvage --to"

    def prepare(self, root: Path) -> None:
        found("journal", str(root / "store"))
        (root / "store" / "journal" / "log.mark").unlink()

    def arguments(self, root: Path) -> list[str | Path]:
        return ["salvage", root / "store", "--to", root / "target"]


class SalvageInPlace(Salvage):
    name = "salvage --in-place"

    def arguments(self, root: Path) -> list[str | Path]:
        return ["salvage", root / "store", "--in-place", "--yes"]

    def check(self, root: Path) -> None:
        run_again(root, *self.arguments(root))
        assert contents(root / "store") == CONTENTS


class AsOf(Command):
    name = "as-of --restore"

    def arguments(self, root: Path) -> list[str | Path]:
        return ["as-of", root / "store", "end", "--restore", root / "target"]


class Export(Command):
    name = "export"

    def arguments(self, root: Path) -> list[str | Path]:
        return ["export", root / "store", root / "target", "--partition-by", "none"]

    def check(self, root: Path) -> None:
        """Check that a repeated run completes the target, with each record once."""
        answer = run("dump", "--json", root / "store")
        lsns = [record["lsn"] for record in map(json.loads, answer.output.splitlines()) if "lsn" in record]
        assert run(*self.arguments(root)).status == 0
        rows = pq.read_table(root / "target", columns=["lsn"]).column("lsn").to_pylist()
        assert sorted(rows) == sorted(lsns)


class LakeExport(Command):
    """An export by a library that cannot sync its files, so that only kills are explored.

    The format's library makes the commit: after a kill its table has the rows of each commit or none of them, and the
    LSNs that the table states decide where the next export continues. After a power failure a commit may lack its files
    (`docs/reference/export.md`).
    """

    is_synced = False

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.name = f"export --format {kind}"

    def arguments(self, root: Path) -> list[str | Path]:
        return ["export", root / "store", root / "target", "--format", self._kind]

    def check(self, root: Path) -> None:
        """Check that a repeated run completes the target, with each record once."""
        assert run(*self.arguments(root)).status == 0
        rows = expected(open_journal(str(root / "store")))
        assert rows
        assert rows_in(root / "target", self._kind) == rows


class UsersCommand(Command):
    """A command on the users file, which has the accounts from before or after the command, with their passwords.

    Every account that the command does not name keeps its password.
    """

    fewest_kills = 4
    before: dict[str, str] = {"anna": "first", "bert": "second"}
    """The passwords by name."""
    after: dict[str, str]

    def prepare(self, root: Path) -> None:
        for name, password in self.before.items():
            answer = run("users", "add", name, *self.options(root), *ITERATIONS, password=password)
            assert answer.status == 0

    def options(self, root: Path) -> list[str | Path]:
        return ["--users-file", root / "target"]

    def check(self, root: Path) -> None:
        accounts = users.read(str(root / "target")).accounts if (root / "target").exists() else {}
        found = {name: self.password_of(name, kept) for name, kept in accounts.items()}
        assert found in (self.before, self.after)
        if found == self.before:
            assert run(*self.arguments(root), password=self.password).status == 0
        accounts = users.read(str(root / "target")).accounts
        assert {name: self.password_of(name, kept) for name, kept in accounts.items()} == self.after
        assert run("users", "check", *self.options(root)).status == 0

    def password_of(self, name: str, kept: Credentials) -> str:
        """Return the password that *kept* proves, of those that the user may have; empty for none."""
        some = {self.before.get(name, ""), self.after.get(name, "")}
        return next((each for each in sorted(some) if prove(each, kept)), "")


class UsersFirstAdd(UsersCommand):
    name = "users add, the first"
    password = "new"
    before: dict[str, str] = {}
    after = {"carl": "new"}

    def arguments(self, root: Path) -> list[str | Path]:
        return ["users", "add", "carl", *self.options(root), *ITERATIONS]


class UsersAdd(UsersFirstAdd):
    name = "users add"
    before = UsersCommand.before
    after = {**UsersCommand.before, "carl": "new"}


class UsersPassword(UsersCommand):
    name = "users password"
    password = "new"
    after = {"anna": "first", "bert": "new"}

    def arguments(self, root: Path) -> list[str | Path]:
        return ["users", "password", "bert", *self.options(root), *ITERATIONS]


class UsersRemove(UsersCommand):
    name = "users remove"
    after = {"anna": "first"}

    def arguments(self, root: Path) -> list[str | Path]:
        return ["users", "remove", "bert", *self.options(root), "--yes"]


COMMANDS = [
    Backup(), Restore(), Load(), Salvage(), SalvageInPlace(), AsOf(), Export(), LakeExport("delta"),
    LakeExport("iceberg"), UsersFirstAdd(), UsersAdd(), UsersPassword(), UsersRemove(),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_command_survives_a_crash_at_any_change(command: Command, tmp_path: Path, tell: Callable[[str], None]) -> None:
    root = tmp_path / "root"
    before, changes = recorded(command, root, tmp_path / "log")
    random = Random(1)
    kills = selected(list(distinct(before.kills(changes))), random)
    cuts = selected(list(distinct(before.power_cuts(changes, random, 1))), random) if command.is_synced else []
    explore(command, root, [*kills, *cuts])
    tell(f"{command.name}: {len(kills)} states after kills and {len(cuts)} after power cuts at {len(changes)} changes")
    assert len(kills) >= command.fewest_kills


def test_explorer_finds_a_command_without_syncs(tmp_path: Path) -> None:
    """The exploration detects missing syncs: without the recorded ones, a target is incomplete."""
    root = tmp_path / "root"
    before, changes = recorded(Load(), root, tmp_path / "log")
    unsynced = [change for change in changes if change.kind not in (Kind.SYNC, Kind.SYNC_DIRECTORY)]
    last_names = [state for state in before.power_cuts(unsynced, Random(1), 20) if "target" in state.tree]
    with pytest.raises((AssertionError, CairnError)):
        explore(Load(), root, last_names)


def recorded(command: Command, root: Path, log: Path) -> tuple[Recorded, list[Change]]:
    """Prepare and run *command*; return the previous directory and the command's changes."""
    root.mkdir()
    command.prepare(root)
    before = Recorded(root)
    program = Path(sys.executable).with_name("cairnmq")
    arguments = map(str, command.arguments(root))
    return before, record(root, log, str(program), *arguments, statuses=(0, DAMAGED), said=command.password)


def explore(command: Command, root: Path, states: Sequence[State]) -> None:
    """Check each of *states*."""
    for state in states:
        state.write(root)
        try:
            command.check(root)
        except (AssertionError, CairnError) as error:
            error.add_note(f"{command.name}: {state.label}; {sorted(state.tree)}")
            raise
        gc.collect()


def selected(states: Sequence[State], random: Random) -> list[State]:
    """Return `STATES` of *states*, always with the last ones, in which the result gets its name."""
    last = max(2, STATES // 4)
    return [*random.sample(states[:-last], min(STATES - last, max(0, len(states) - last))), *states[-last:]]
