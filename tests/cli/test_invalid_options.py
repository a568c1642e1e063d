"""Tests that an invalid option, environment variable or configuration file causes status 2 and a one-line error."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from cairnmq.base.errors import CairnError
from cairnmq.cli.common.statuses import error_status, invalid_options
from cairnmq.cli.main import main

BROKER = "broker --store-dir data --port 0"
ENVIRONMENT = [
    ("CAIRNMQ_PORT=tcp://10.0.0.1:5672", BROKER.removesuffix(" --port 0")),
    ("CAIRNMQ_PORT=70000", "config show"),
    ("CAIRNMQ_IDLE_TIMEOUT=1y", BROKER),
    ("CAIRNMQ_MEMORY_LIMIT=1GBx", BROKER),
    ("CAIRNMQ_TLS_ONLY=perhaps", BROKER),
    ("CAIRNMQ_LOG_FORMAT=xml", BROKER),
    ("CAIRNMQ_STORE=tape", "broker --store-dir data"),
    ("CAIRNMQ_CREDIT=0", "config check good.toml"),
    ("CAIRNMQ_CONFIG=nowhere.toml", BROKER),
    ("CAIRNMQ_CONNECT_TO=http://mq2", BROKER),
    ("CAIRNMQ_URL=http://mq2", "ctl queues list"),
    ("CAIRNMQ_COLOR=sometimes", "ctl queues list"),
]
OPTIONS = [
    f"{BROKER} --archive-max-size 1G", f"{BROKER} --archive-dir a --archive-max-size 100K",
    f"{BROKER} --archive-dir data/journal", f"{BROKER} --tls-port 0", f"{BROKER} --tls-only",
    f"{BROKER} --listen 0.0.0.0", f"{BROKER} --failover-server mq2", f"{BROKER} --redirect-to mq2:0",
    f"{BROKER} --redirect-to amqp://mq2:5672", f"{BROKER} --failover-server amqps://mq2:5671",
    f"{BROKER} --redirect-to user@mq2:5672", f"{BROKER} --redirect-to mq2/x:5672", f"{BROKER} --redirect-to a:b:5672",
    f"{BROKER} --tls-port 0 --tls-cert c.pem --tls-ca ca.pem",
    f"{BROKER} --tls-port 0 --tls-cert c.pem --tls-ca ca.pem --tls-only",
    f"{BROKER} --tls-port 0 --tls-cert c.pem --tls-ca ca.pem --tls-client-certs required",
    f"{BROKER} --link-route hub", f"{BROKER} --auto-link hub", f"{BROKER} --connect-to http://mq2",
    f"{BROKER} --advertise mq2:5672", f"{BROKER} --store tape", f"{BROKER} --store sql --sidecars",
    f"{BROKER} --store memory --journal-acquisitions", f"{BROKER} --store memory --archive-dir a",
    f"{BROKER} --store memory --connect postgresql://host/db", f"{BROKER} --http-port 0 --http-listen 0.0.0.0",
    f"{BROKER} --log-file nowhere/log", f"{BROKER} --users-file text", f"{BROKER} --acl-file text",
    f"{BROKER} --metrics-port 0 --metrics-token-file text", f"{BROKER} --tls-port 0 --tls-cert nowhere",
    f"{BROKER} --tls-port 0 --tls-cert text", "console --http-listen 0.0.0.0",
    "console --http-port 0 --tls-cert text", "salvage data", "salvage data --to new --in-place",
    "broker --port 0 --store-dir text/data", "broker --port 0 --store-dir loop", "broker --port 0 --store-dir ''",
    "broker --port 0 --store-dir /dev/null", f"{BROKER} --archive-dir text/archive", "backup . text/backup",
    f"{BROKER} --audit-file nowhere/log", f"{BROKER} --audit-file loop", f"{BROKER} --trace-ratio nan",
    f"{BROKER} --trace-to localhost", f"{BROKER} --trace-to file:///etc/passwd", f"{BROKER} --trace-to http://:4318",
    f"{BROKER} --store sql --connect text", "users list --users-file text", "users add anna --users-file text",
    "users check --users-file loop", "ctl --ca text queues list", "console --ca text",
    "support-bundle --seconds 0 --metrics file:///etc/passwd --to bundle.tar.gz",
    f"{BROKER} --failover-server '\udcff:5672'", f"{BROKER} --container-id 'a\udcff'",
    "users add 'an na' --users-file users", "ctl --timeout 1y queues list", "stat data --output xml",
]  # fmt: skip
Call = Callable[[str], tuple[int, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs a command in a directory with some files, and returns its status and errors."""
    (tmp_path / "good.toml").write_text('store = "memory"\n')
    (tmp_path / "text").write_text("two words\n")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRNMQ_COLOR", "auto")

    def run(words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["cairnmq", *shlex.split(words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capfd.readouterr().err

    return run


def check(status: int, errors: str) -> None:
    lines = errors.splitlines()
    assert status == 2, errors
    assert "Traceback" not in errors
    assert len(lines) == 1 or lines[0].startswith("Usage: "), errors


@pytest.mark.parametrize(("variable", "words"), ENVIRONMENT, ids=[variable for variable, _ in ENVIRONMENT])
def test_invalid_variable_is_status_2(
    variable: str, words: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    status, errors = call(words)
    check(status, errors)
    assert value.rpartition("/")[2] in errors
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("words", OPTIONS)
def test_invalid_option_is_status_2(words: str, call: Call) -> None:
    check(*call(words))


TLS = 'tls-port = 0\ntls-cert = "server.pem"\n'
CERTIFIED = 'tls-only = true\ntls-client-certs = "required"\n'
NAMED_FILES = [
    ('users-file = "nowhere"', "nowhere: there is no such users file; make one with `cairnmq users add`"),
    ('users-file = "text"', "text, line 1: not a users file of CairnMQ; make one with `cairnmq users add`"),
    ('users-file = "."', "broker.toml:3: users-file = '.': File '.' is a directory"),
    ('acl-file = "nowhere"', "nowhere: can't be read: No such file or directory; name a readable file of access rules"),
    ('acl-file = "text"', "text: "),
    ('tls-port = 0\ntls-cert = "nowhere"', "--tls-cert nowhere, --tls-key nowhere: can't be used: No such file or "),
    ('tls-port = 0\ntls-cert = "text"', "--tls-cert text, --tls-key text: can't be used: "),
    (f'{TLS}tls-key = "nowhere"', "--tls-cert server.pem, --tls-key nowhere: can't be used: No such file or "),
    (f'{TLS}tls-key = "other.pem"', "--tls-cert server.pem, --tls-key other.pem: can't be used: "),
    (f'{TLS}{CERTIFIED}tls-ca = "nowhere"',
     "--tls-ca nowhere: can't be used: No such file or directory; give CAs in PEM"),
    (f'{TLS}{CERTIFIED}tls-ca = "ca.pem"\ntls-crl = "text"', "--tls-crl text: can't be used: "),
    ('metrics-token-file = "nowhere"', "nowhere: can't be read: No such file or directory; name a file with the token"),
    ('metrics-token-file = "text"', "text: invalid token"),
    ('connect-to = ["amqps://mq2?ca=nowhere"]', "connector mq2"),
    ('store = "tape"\nstore-dir = "data"', "--store tape: there is no such kind of store"),
]


@pytest.fixture
def certificates(call: Call, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name in ("server", "other"):
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))


@pytest.mark.usefixtures("certificates")
@pytest.mark.parametrize(("text", "expected"), NAMED_FILES)
def test_check_reports_a_file_that_is_missing_or_invalid(text: str, expected: str, call: Call, tmp_path: Path) -> None:
    """`config check` reports the error that the start of a broker reports, which then creates no files."""
    base = "" if "store =" in text else 'store = "memory"\n'
    (tmp_path / "broker.toml").write_text(f"{base}port = 0\n{text}\n")
    for words in ("config check broker.toml", "broker --config broker.toml"):
        status, errors = call(words)
        assert (status, errors.count("\n")) == (2, 1), errors
        assert errors.startswith(f"cairnmq: {expected}")
    status, _ = call("doctor --config broker.toml --seconds 0")
    assert status == 3


@pytest.mark.usefixtures("certificates")
def test_check_accepts_files_that_exist(
    call: Call, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules").write_text("")
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setattr("sys.stdin", (tmp_path / "token").open())
    assert call("users add anna --users-file users --iterations 15000")[0] == 0
    (tmp_path / "broker.toml").write_text(
        f'store = "memory"\n{TLS}tls-ca = "ca.pem"\nusers-file = "users"\nacl-file = "rules"\n'
        'metrics-token-file = "token"\nconnect-to = ["amqps://mq2?ca=ca.pem"]\n'
    )
    assert call("config check broker.toml") == (0, "")


def test_console_without_its_certificate_is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere")
    monkeypatch.setattr(sys, "argv", ["cairnmq", "console", "--http-port", "0", "--tls-cert", missing])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert (ended.value.code, out, err.count("\n"), missing in err) == (2, "", 1, True), err


def fail(number: int) -> None:
    """Raise the error of a failed file read, caused by an `OSError` with *number*."""
    try:
        raise OSError(number, os.strerror(number))
    except OSError as error:
        raise CairnError("users", f"can't be read: {error.strerror}") from error


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOSPC, errno.EIO])
def test_error_that_may_pass_is_no_invalid_option(number: int) -> None:
    """Temporary errors have status 1, as service managers do not restart a broker that ended with status 2."""
    with pytest.raises(CairnError) as raised, invalid_options():
        fail(number)
    assert error_status(raised.value) == (1 if number in (errno.ENOSPC, errno.EIO) else 2)


def test_invalid_url_is_not_repeated(call: Call) -> None:
    """The error for an invalid URL does not contain the URL, which may have credentials."""
    status, errors = call(f"{BROKER} --trace-to ftp://anna:secret@collector/")
    assert (status, "secret" in errors) == (2, False)
    assert "--trace-to: invalid URL: the scheme is 'ftp'; give a URL such as http" in errors
