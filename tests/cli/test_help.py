"""Tests of help, completion, colors and confirmations of commands."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cairnmq.cli.main import COMMANDS, cairnmq
from cairnmq.cli.manage.completion import SHELLS
from cairnmq.cli.run.broker import broker as broker_command
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

MOST_CHARACTERS = 50
"""Maximum length of a short help text, so that lists of commands do not truncate it."""


SENTENCES = re.compile(r"\S(.*\S)?\.(  \[default: [^]]+\])?", re.DOTALL)
"""Help text of an option: sentences with periods, and a default value that click can't determine."""


def every_command(group: click.Group = cairnmq, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


EVERY = dict(every_command())


def test_short_helps_fit_in_a_list() -> None:
    told = {path: command.get_short_help_str(1000) for path, command in EVERY.items() if " " in path}
    told |= {name: entry.text for name, entry in COMMANDS.items()}
    assert {path: text for path, text in told.items() if not text or len(text) >= MOST_CHARACTERS} == {}
    assert {path: text for path, text in told.items() if not text[0].isupper() or text.endswith(".")} == {}


def test_commands_are_listed_by_purpose() -> None:
    shown = CliRunner().invoke(cairnmq, ["--help"]).output
    subjects = ("Run", "Manage", "Store", "History", "Analyze", "Test")
    places = [shown.index(f"\n{subject}:\n") for subject in subjects]
    assert places == sorted(places)
    for name, entry in COMMANDS.items():
        assert any(line.split() == [name, *entry.text.split()] for line in shown.splitlines()), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example_that_can_be_parsed(name: str) -> None:
    shown = CliRunner().invoke(cairnmq, [name, "--help"]).output
    examples = [line.strip() for line in shown.splitlines() if line.startswith(("  cairnmq ", "    cairnmq "))]
    assert examples
    assert "Example" in shown
    for words in (shlex.split(example.partition(" > ")[0])[1:] for example in examples):
        found: click.Command = cairnmq
        known = {"--help"}
        for word in words:
            if isinstance(found, click.Group) and not word.startswith("-"):
                found = EVERY.get(" ".join([*([] if found is cairnmq else [name]), word]), found)
            known |= {opt for param in found.params for opt in param.opts}
        assert found is not cairnmq
        assert {word for word in words if word.startswith("--")} <= known


def parsed(words: list[str]) -> click.Context:
    """Return the context of a call with converted values; raise `click.ClickException` for an invalid value."""
    command: click.Command = cairnmq
    name: str | None = "cairnmq"
    context: click.Context | None = None
    while True:
        context = command.make_context(name, words, parent=context)
        if not isinstance(command, click.Group):
            return context
        name, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found


@pytest.mark.parametrize("path", [path for path, command in EVERY.items() if not isinstance(command, click.Group)])
def test_every_command_has_an_example_that_parses(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help of every command has an example of that command with valid values; redirections are ignored."""
    monkeypatch.chdir(tmp_path)
    for name in ("cairnmq.toml", "dump.jsonl"):  # files that examples read
        (tmp_path / name).touch()
    (tmp_path / "data").mkdir()
    lines = CliRunner().invoke(cairnmq, [*path.split(), "--help"]).output.replace("\\\n", " ").splitlines()
    calls = [shlex.split(line.partition(" > ")[0]) for line in lines if line.strip().startswith("cairnmq ")]
    own = [call[1:] for call in calls if call[1 : 1 + len(path.split())] == path.split()]
    assert own, lines
    for words in own:
        with parsed(words) as context:
            assert context.command_path == f"cairnmq {path}"


@pytest.mark.parametrize("path", [path for path, command in EVERY.items() if isinstance(command, click.Group)])
def test_help_of_every_group_has_an_example(path: str) -> None:
    lines = CliRunner().invoke(cairnmq, [*path.split(), "--help"]).output.splitlines()
    assert any(line.strip().startswith(f"cairnmq {path} ") for line in lines), lines


def test_help_of_entities_names_them() -> None:
    ctl = {path: command.get_short_help_str(1000) for path, command in EVERY.items() if path.startswith("ctl ")}
    found = {path: text for path, text in ctl.items() if path.split()[-1] in ("list", "show")}
    assert len(found) > 20
    for path, text in found.items():
        assert path.split()[1].removesuffix("s").removesuffix("e") in text


def test_every_option_has_a_help() -> None:
    options = [(path, param) for path, command in EVERY.items() for param in command.params]
    shown = [(path, one) for path, one in options if isinstance(one, click.Option) and not one.hidden]
    assert len(shown) > 500
    assert [(path, one.opts[0], one.help) for path, one in shown if not SENTENCES.fullmatch(one.help or "")] == []


@pytest.mark.parametrize("path", ["replay", "as-of", "ctl queues move"])
def test_create_promises_what_auto_create_permits(path: str) -> None:
    [create] = [param for param in EVERY[path].params if "--create" in param.opts]
    assert isinstance(create, click.Option)
    assert "auto-create permits" in str(create.help)


def test_options_of_the_broker_are_listed_by_subject() -> None:
    shown = CliRunner().invoke(broker_command, ["--help"]).output
    for option in broker_command.described().values():
        place = shown.index(f"  --{option.key} " if option.key != "verbose" else "-v, --verbose")
        titles = [line for line in shown[:place].splitlines() if line.endswith(":") and not line.startswith(" ")]
        assert titles[-1] == f"{option.subject}:"


def completed(*words: str) -> set[str]:
    complete = ShellComplete(cairnmq, {}, "cairnmq", "_CAIRNMQ_COMPLETE")
    return {item.value for item in complete.get_completions(list(words[:-1]), words[-1])}


def test_commands_and_options_are_completed() -> None:
    assert completed("c") == {"config", "console", "ctl", "calibrate", "cluster-lab", "completion"}
    assert completed("ctl", "que") == {"queues"}
    assert completed("broker", "--tls-c") == {"--tls-cert", "--tls-ca", "--tls-crl", "--tls-client-certs"}
    assert completed("completion", "") == set(SHELLS)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("help") / "store") as started:
        for name in ("orders", "orders.dead", "news"):
            done = subprocess.run([*ctl(started), "queues", "create", name], timeout=DEADLINE_S, capture_output=True)
            assert done.returncode == 0
        yield started


def ctl(running: BrokerProcess) -> list[str]:
    return [CAIRNMQ, "ctl", "--timeout", "60s", "--url", f"127.0.0.1:{running.port}"]


def test_names_are_completed_by_the_broker(running: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairnmq.cli.manage.completion.DEADLINE_S", 60.0)  # for busy machines
    url = f"127.0.0.1:{running.port}"
    assert completed("ctl", "--url", url, "queues", "peek", "ord") == {"orders", "orders.dead"}
    assert completed("ctl", "--url", url, "exchanges", "show", "amq.t") == {"amq.topic"}


def test_names_are_not_completed_without_a_broker_or_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRNMQ_PASSWORD", raising=False)
    for url in ("127.0.0.1:1", "http://127.0.0.1"):
        assert completed("ctl", "--url", url, "queues", "peek", "") == set()
    assert completed("ctl", "--url", "127.0.0.1:1", "--user", "anna", "queues", "peek", "") == set()


def test_script_completes_in_bash(tmp_path: Path) -> None:
    """The generated completion script completes a command in bash."""
    script = tmp_path / "script"
    script.write_text(
        f'PATH="{Path(CAIRNMQ).parent}:$PATH"\neval "$(cairnmq completion bash)"\n'
        "COMP_WORDS=(cairnmq conf) COMP_CWORD=1\n_cairnmq_completion cairnmq\necho \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == "config\n", done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str) -> None:
    done = CliRunner().invoke(cairnmq, ["completion", shell])
    assert done.exit_code == 0
    assert "_CAIRNMQ_COMPLETE=" in done.output


def on_a_terminal(command: list[str], answer: str, **environment: str) -> tuple[int, str]:
    """Run a command on a terminal, type *answer*, and return its status and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **environment}
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    found = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        found += more
    os.close(ours)
    return process.wait(DEADLINE_S), found.decode()


def test_completion_requests_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRNMQ_PASSWORD", raising=False)
    asked = {"_CAIRNMQ_COMPLETE": "bash_complete", "COMP_WORDS": "cairnmq ctl queues peek ", "COMP_CWORD": "4"}
    for url, user in (("127.0.0.1:1", "anna"), ("amqp://anna@127.0.0.1:1", "")):
        status, shown = on_a_terminal([CAIRNMQ], "a password\n", **asked, CAIRNMQ_URL=url, CAIRNMQ_USER=user)
        assert (status, "password of" in shown) == (0, False)


def test_destructive_command_asks_on_a_terminal(running: BrokerProcess) -> None:
    status, shown = on_a_terminal([*ctl(running), "queues", "delete", "news"], "n\n")
    assert (status, "Delete queue news with 0 messages? [y/N]" in shown) == (1, True)
    status, shown = on_a_terminal([*ctl(running), "exchanges", "delete", "amq.topic"], "n\n")
    assert (status, "Delete exchange amq.topic? [y/N]" in shown) == (1, True)
    status, shown = on_a_terminal([*ctl(running), "queues", "purge", "news"], "y\n")
    assert (status, "purged 0 messages from queue news" in shown) == (0, True)
    status, shown = on_a_terminal([*ctl(running), "queues", "purge", "news", "--yes"], "")
    assert (status, "[y/N]" in shown) == (0, False)


def test_salvage_in_place_asks_on_a_terminal(tmp_path: Path) -> None:
    question = f"Replace the journal and the wiring of {tmp_path} by what can be recovered? [y/N]"
    command = [CAIRNMQ, "salvage", str(tmp_path), "--in-place"]
    status, shown = on_a_terminal(command, "n\n", COLUMNS="400")
    assert (status, question in shown, "no store" in shown) == (1, True, False)
    status, shown = on_a_terminal(command, "y\n", COLUMNS="400")
    assert (status, question in shown, "no store" in shown) == (1, True, True)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("delete", "orders"), "would delete queue orders with 0 messages\n"),
        (("purge", "orders"), "would purge 0 messages from queue orders\n"),
        (("move", "orders", "news", "--count", "3"), "would move 0 messages from queue orders to news\n"),
    ],
)
def test_dry_run_changes_nothing(running: BrokerProcess, command: tuple[str, ...], told: str) -> None:
    asked = [*ctl(running), "queues", *command, "--dry-run"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (0, told)
    names = subprocess.run([*ctl(running), "queues", "list"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert "orders " in names.stdout


def test_output_is_csv_on_request(running: BrokerProcess) -> None:
    columns = "name,state,messages,ready,unsettled,consumers,durable,bindings,enqueued,dequeued"
    asked = [*ctl(running), "queues", "list", "--like", "orders*", "--output", "csv", "--columns", columns]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.splitlines() == [
        columns,
        "orders,normal,0,0,0,0,true,0,0,0",
        "orders.dead,normal,0,0,0,0,true,0,0,0",
    ]
    one = subprocess.run([*ctl(running), "--output", "csv", "queues", "show", "news"], capture_output=True, text=True)
    assert one.stdout.splitlines()[0] == "attribute,value"


@pytest.mark.parametrize(
    ("options", "environment", "colored"),
    [
        ((), {}, True),
        (("--color", "never"), {}, False),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"CAIRNMQ_COLOR": "never"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_color_on_a_terminal(
    running: BrokerProcess, options: tuple[str, ...], environment: dict[str, str], colored: bool
) -> None:
    command = [CAIRNMQ, *options, *ctl(running)[1:], "queues", "list"]
    status, shown = on_a_terminal(command, "", **environment)
    assert (status, "\x1b[" in shown) == (0, colored)


def test_color_in_a_pipe_only_if_wanted(running: BrokerProcess) -> None:
    for options, colored in (((), False), (("--color", "always"), True)):
        command = [CAIRNMQ, *options, *ctl(running)[1:], "queues", "list"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert (done.returncode, "\x1b[" in done.stdout) == (0, colored)


def test_man_pages_of_every_command(tmp_path: Path) -> None:
    pytest.importorskip("click_man", reason="an environment from before it was in the extra `dev`")
    script = Path(__file__).parents[2] / "scripts" / "man_pages.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {f"cairnmq-{path.replace(' ', '-')}.1" for path in EVERY}
    page = (tmp_path / "cairnmq-broker.1").read_text()
    page = page.replace("\\-", "-")
    assert all(f"--{key}" in page for key in broker_command.described())
