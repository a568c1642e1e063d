"""Tests of the broker configuration: sources and their precedence, `cairnmq config`, and errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cairnmq.base.errors import CairnError
from cairnmq.cli.common.units import Duration, HttpUrl
from cairnmq.cli.run.broker import broker as broker_command
from cairnmq.cli.run.config import config
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess

from .option_page import PAGE, page

OPTIONS = broker_command.described()


def run(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CAIRNMQ, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, cwd=cwd,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip


def shown(*arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the rows of `config show --json` by option."""
    found = CliRunner().invoke(config, ["show", "--json", *arguments], env=environment, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return {row["option"]: row for row in json.loads(found.output)}


def file_of(directory: Path, text: str) -> str:
    path = directory / "broker.toml"
    path.write_text(text)
    return str(path)


def test_value_comes_from_the_first_source_that_has_it(tmp_path: Path) -> None:
    path = file_of(tmp_path, '# comment\nport = 1\nlisten = "::1"\ncredit = 7\nmemory-limit = "1GB"\n')
    rows = shown("--config", path, "--port", "3", environment={"CAIRNMQ_PORT": "2", "CAIRNMQ_CREDIT": "8"})
    assert [(rows[key]["value"], rows[key]["source"]) for key in ("port", "credit", "listen", "memory-limit")] == [
        (3, "command line"), (8, "CAIRNMQ_CREDIT"), ("::1", f"{path}:3"), (10**9, f"{path}:5"),
    ]  # fmt: skip
    assert (rows["max-links"]["value"], rows["max-links"]["source"]) == (1024, "default")
    assert set(rows) == set(OPTIONS)


def other_value(option: click.Option) -> tuple[Any, str]:
    """Return a valid value other than the default, in the forms for TOML and for the environment."""
    if option.is_flag:
        return True, "1"
    if isinstance(option.type, click.Choice):
        return option.type.choices[-1], option.type.choices[-1]
    if option.multiple:
        return ["a", "b"], "a b"
    if option.count or isinstance(option.type, click.IntRange):
        least = getattr(option.type, "min", None) or 0
        return least + 3, str(least + 3)
    if isinstance(option.type, Duration):
        return "6m", "360s"
    if isinstance(option.type, click.FloatRange):
        return 0.5, "0.5"
    if isinstance(option.type, HttpUrl):
        return "https://collector/v1/traces", "https://collector/v1/traces"
    return ("2M", "2097152") if option.type.name == "size" else ("text", "text")


@pytest.mark.parametrize("key", OPTIONS)
def test_every_option_is_read_from_the_file_and_from_the_environment_alike(key: str, tmp_path: Path) -> None:
    value, text = other_value(OPTIONS[key])
    path = file_of(tmp_path, f"{key} = {json.dumps(value)}\n")
    of_file, variable = shown("--config", path)[key], f"CAIRNMQ_{key.replace('-', '_').upper()}"
    of_environment = shown(environment={variable: text})[key]
    assert (of_file["source"], of_environment["source"]) == (f"{path}:1", variable)
    assert of_file["value"] == of_environment["value"] != shown()[key]["value"]


WRONG = {
    "prot = 1": ":1: prot: unknown key; did you mean 'port'?",
    "store_dir = 'x'": ":1: store_dir: unknown key; did you mean 'store-dir'?",
    "zzz = 1": ":1: zzz: unknown key; `cairnmq config show` lists all keys",
    "[network]\nport = 1": ":1: network: unknown key",
    "\nport = '5672'": ":2: port = '5672': expected `int`, got `str`; change the type of the value",
    "anycast = 'a'": ":1: anycast = 'a': expected `array`, got `str`",
    "tls-only = 1": ":1: tls-only = 1: expected `bool`, got `int`",
    "\n\nport = 70000": ":3: port = 70000: 70000 is not in the range 0<=x<=65535",
    "memory-limit = '1GBx'": ":1: memory-limit = '1GBx': invalid size; give bytes",
    "idle-timeout = '1y'": ":1: idle-timeout = '1y': invalid duration; give a number with a unit",
    "log-format = 'xml'": ":1: log-format = 'xml': 'xml' is not one of 'text', 'json'",
    "port = 1\nport = 2": ": invalid TOML: Cannot overwrite a value (at line 2, column 9)",
    "port = ": ": invalid TOML: Invalid value (at line 1, column 8)",
    "archive-max-size = '1G'": "--archive-max-size, --archive-max-age: there is no archive",
    "port = " + "[" * 5000: ": invalid TOML: arrays or tables are nested too deep",
    "tls-only = true": "--tls-...: TLS is to be spoken, and at no port",
}


@pytest.mark.parametrize("text", WRONG)
def test_error_of_the_file_is_one_line_with_place_value_reason_and_remedy(text: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, f"{text}\nstore = 'memory'\n" if "[" not in text else text)
    found = CliRunner().invoke(config, ["check", path])
    assert isinstance(found.exception, CairnError)
    line = str(found.exception)
    assert "\n" not in line
    assert line.startswith(WRONG[text] if WRONG[text].startswith("--") else path + WRONG[text])


def test_error_of_the_environment_names_the_variable() -> None:
    done = run("broker", "--store", "memory", environment={"CAIRNMQ_PORT": "tcp://10.0.0.1:5672"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "cairnmq: CAIRNMQ_PORT in the environment = 'tcp://10.0.0.1:5672': 'tcp://10.0.0.1:5672' is not a valid "
        "integer range; see cairnmq broker --help\n"
    )


MISSPELLED = {"CAIRNMQ_STOREDIR": "secret-value", "CAIRNMQ_ZZZZZZ": "secret-value", "CAIRNMQ_SITE_B": "secret-value"}
WARNINGS = (
    "CAIRNMQ_STOREDIR in the environment: unknown variable, ignored; did you mean CAIRNMQ_STORE_DIR?",
    "CAIRNMQ_ZZZZZZ in the environment: unknown variable, ignored; unset it; `cairnmq config show` lists all options",
)


def test_misspelled_variable_is_reported_at_start_with_the_nearest_known_one() -> None:
    """An unknown variable is reported without its value, which may be a password, also if the start fails."""
    done = run("broker", environment={name: MISSPELLED[name] for name in ("CAIRNMQ_STOREDIR", "CAIRNMQ_ZZZZZZ")})
    assert [line.partition(" WARNING broker.unknown-variable ")[2] for line in done.stdout.splitlines()] == [*WARNINGS]
    assert "Missing option '--store-dir'" in done.stderr
    assert "secret-value" not in done.stdout + done.stderr


def test_config_commands_report_misspelled_variables(tmp_path: Path) -> None:
    path = file_of(tmp_path, 'store = "memory"\nconnect-to = ["amqp://anna@mq2?name=b&password-env=CAIRNMQ_SITE_B"]\n')
    expected = "".join(f"cairnmq config: warning: {warning}\n" for warning in WARNINGS)
    for arguments in (("check", path), ("show", "--json", "--config", path)):
        done = run("config", *arguments, environment={**MISSPELLED, "CAIRNMQ_PASSWORD": "pw"})
        assert (done.returncode, done.stderr) == (0, expected), "a variable that a URL names is known"


def test_file_that_is_missing_or_not_text_is_one_line(tmp_path: Path) -> None:
    missing = run("broker", "--config", str(tmp_path / "nope.toml"))
    assert missing.stderr == (
        f"cairnmq: --config {tmp_path}/nope.toml: can't be read: No such file or directory; name a readable file\n"
    )
    (tmp_path / "latin.toml").write_bytes(b'listen = "\xe4"\n')
    latin = run("config", "check", str(tmp_path / "latin.toml"))
    assert latin.returncode == 2
    assert "not UTF-8" in latin.stderr


def test_config_file_must_be_a_regular_file_of_moderate_size(tmp_path: Path) -> None:
    """Other files cause a one-line error with their name; a pipe without a writer does not block."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(b"#" * (1 << 20) + b"#")
    expected = {
        tmp_path / "pipe": (2, "not a regular file; name a TOML file"),
        tmp_path: (2, "a directory; name a TOML file"),
        tmp_path / "huge": (2, "longer than 1 MiB; name a TOML file with options"),
        tmp_path / "nowhere": (2, "can't be read: No such file or directory; name a readable file"),
    }
    for path, (status, reason) in expected.items():
        checked, started = run("config", "check", str(path)), run("broker", "--config", str(path))
        assert (checked.returncode, checked.stderr) == (status, f"cairnmq: {path}: {reason}\n")
        assert (started.returncode, started.stderr) == (status, f"cairnmq: --config {path}: {reason}\n")


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(b"\xef\xbb\xbfport = 1\n")
    assert shown("--config", str(path))["port"]["value"] == 1


def test_check_accepts_a_complete_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, 'store-dir = "data"\nport = 0\nauto-create = ["a*", "b*"]\nidle-timeout = 30\n')
    done = run("config", "check", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: OK, 4 options\n", "")
    assert json.loads(run("config", "check", path, "--json").stdout) == {"file": path, "options": 4}
    assert run("config", "--output", "csv", "check", path).stdout == f"file,options\n{path},4\n"
    assert list(tmp_path.iterdir()) == [Path(path)], "a check creates nothing"


@pytest.mark.parametrize("is_named", [False, True])
def test_broker_runs_from_a_file_alone(tmp_path: Path, is_named: bool) -> None:
    """A broker runs with the file of `--config`, or with `cairnmq.toml` in the working directory."""
    name = "other.toml" if is_named else "cairnmq.toml"
    (tmp_path / name).write_text('store = "memory"\nport = 0\n')
    more = {"CAIRNMQ_CONFIG": name} if is_named else {}
    running = BrokerProcess(
        tmp_path / "unused", within=lambda command: ["env", "-C", str(tmp_path), *command[:2]], environment=more
    )
    try:
        assert running.port
        running.wait_for("storing in memory")
        running.wait_for(f"configuration from {name}")
    finally:
        assert running.stop() == 0


def test_passwords_are_never_shown() -> None:
    environment = {
        "CAIRNMQ_CONNECT": "postgresql+psycopg://u:s3cret@host/db",
        "CAIRNMQ_CONNECT_TO": "amqp://a:s3cret@host amqps://b:s3cret@host?name=x",
    }
    rows = shown(environment=environment)
    assert rows["connect"]["value"] == "postgresql+psycopg://u:***@host/db"
    assert rows["connect-to"]["value"] == ["amqp://a:***@host", "amqps://b:***@host?name=x"]
    table = CliRunner().invoke(config, ["show"], env=environment)
    assert table.exit_code == 0
    assert "s3cret" not in table.output


def test_show_has_the_common_formats(tmp_path: Path) -> None:
    expected = {"option": "port", "value": 7, "unit": None, "source": "command line", "reload": False}
    for words in (("--json",), ("--output", "json")):
        assert shown("--changed", "--port", "7", *words)["port"] == expected
    show = ("config", "show", "--changed", "--port", "7")
    for call in (("--output", "csv", *show), ("config", "--output", "csv", *show[1:]), (*show, "--output", "csv")):
        done = run(*call, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "option,value,source,reload\nport,7,command line,false\n")


def test_changed_leaves_out_defaults() -> None:
    assert set(shown("--changed", "--port", "1")) == {"port"}


def test_reference_page_lists_every_option_as_defined() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.cli.option_page`"


def test_reload_applies_what_can_change_and_names_the_rest(tmp_path: Path) -> None:
    """SIGHUP applies changes such as the log level and quotas, and reports options that require a restart."""
    path = tmp_path / "broker.toml"
    path.write_text('store = "memory"\nport = 0\n')
    running = BrokerProcess(
        tmp_path / "unused", within=lambda command: [*command[:2], "--config", str(path), "--log-level", "info"]
    )
    try:
        running.ready()
        changed = 'audit-logins = true\nmax-links = 7\ncredit = 9\nmemory-limit = "8M"\n'
        path.write_text(f'store = "memory"\nport = 0\n{changed}')
        checked = run("ctl", "--url", f"127.0.0.1:{running.port}", "reload", "--dry-run")
        assert (checked.returncode, checked.stdout) == (0, "the files are valid; nothing was changed\n")
        assert "changed, and used from the next start on: credit, max-links" in checked.stderr
        kept = json.loads(run("ctl", "--url", f"127.0.0.1:{running.port}", "broker", "--json").stdout)
        assert kept["memory-limit-bytes"] == 256 << 20
        running.process.send_signal(signal.SIGHUP)
        running.wait_for(" WARNING broker.restart-needed changed, and used from the next start on: credit, max-links")
        running.wait_for(" broker.reloaded ")
        shown = run("ctl", "--url", f"127.0.0.1:{running.port}", "broker", "--json")
        assert json.loads(shown.stdout)["memory-limit-bytes"] == 8 << 20
        running.wait_for(" INFO login ")
        reloaded = run("ctl", "--url", f"127.0.0.1:{running.port}", "reload")
        assert reloaded.returncode == 0
        assert "changed, and used from the next start on: credit, max-links" in reloaded.stderr
        path.write_text('store = "memory"\nprot = 0\n')
        wrong = run("ctl", "--url", f"127.0.0.1:{running.port}", "reload", "--dry-run")
        assert (wrong.returncode, "prot: unknown key" in wrong.stderr) == (1, True)
        running.process.send_signal(signal.SIGHUP)
        running.wait_for(f" ERROR broker.reload-failed reload failed, nothing is changed: {path}:2: prot: unknown key")
        refused = run("ctl", "--url", f"127.0.0.1:{running.port}", "reload")
        assert refused.returncode == 1
        assert "prot: unknown key" in refused.stderr
    finally:
        assert running.stop() == 0


def test_reload_changes_the_level_of_the_log_and_quotas(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('store = "memory"\nport = 0\nusers-file = "users"\nallow-insecure-auth = true\n')
    added = subprocess.run(
        [CAIRNMQ, "users", "add", "anna", "--users-file", "users", "--iterations", "15000"],
        input="pw\n", text=True, capture_output=True, cwd=tmp_path, timeout=DEADLINE_S,
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    running = BrokerProcess(
        tmp_path, within=lambda command: ["env", "-C", str(tmp_path), *command[:2], "--config", str(path)]
    )
    ctl = ("ctl", "--json", "--url", f"127.0.0.1:{running.port}", "--user", "anna")
    password = {"CAIRNMQ_PASSWORD": "pw"}
    try:
        [before] = json.loads(run(*ctl, "users", "list", environment=password).stdout)
        path.write_text(path.read_text() + 'max-queues-per-user = 3\nlog-level = "debug"\n')
        assert run(*ctl, "reload", environment=password).returncode == 0
        [after] = json.loads(run(*ctl, "users", "list", environment=password).stdout)
        assert (before["max-queues"], after["max-queues"]) == (4000, 3)
        running.wait_for(" DEBUG login ")
    finally:
        assert running.stop() == 0
