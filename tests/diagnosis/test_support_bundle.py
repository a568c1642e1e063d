"""Tests that a support bundle has no secrets and no message contents from any source."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tarfile
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.tools.diagnosis.text_redaction import HIDDEN, TextRedaction
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker

SECRET = "s3cr3t-%s-tail"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r"
TEMPLATES = (
    "connect failed: amqp://anna:{}@host:5672/x",
    "postgresql+psycopg://{}@host/db and more",
    "Authorization: Bearer {}longer",
    'GET / {{"authorization": "Basic {}longer"}}',
    "password={}",
    "--password: {}",
    'connect-to-password = "{}"',
    "{{'api_key': '{}'}}",
    '{{"event": "x", "fields": {{"token": "{}", "more": 1}}}}',
    '"fields": "{{\\"client_secret\\": \\"{}\\"}}"',
    "SECRET_KEY = {} and words behind",
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n{}",
)
WORDS = st.text("abcdefghijkmnopqrstuvwxyzABCDEFGH0123456789!#$%&*+-./?_~", min_size=8, max_size=30)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEMPLATES), WORDS, st.sampled_from(["", "2026-01-01 INFO before\n"]))
def test_redaction_removes_a_secret_in_each_place(template: str, word: str, before: str) -> None:
    secret = f"zq{word}qz"
    text = TextRedaction()(before + template.format(secret) + "\n")
    assert secret not in text
    assert not any(secret[at : at + 8] in text for at in range(len(secret) - 7))
    assert text.startswith(before)


def test_redaction_keeps_ordinary_lines() -> None:
    lines = (
        "2026-11-24T17:38:33.376Z INFO broker.listening listening on 127.0.0.1:35389\n"
        "2026-11-24T17:38:33.376Z WARNING login.failed anna from 10.0.0.1:5000: wrong user name or password\n"
        '{"event": "broker.recovered", "messages": 12, "queue": "orders", "lsn": 1048576}\n'
        "cannot connect to amqp://host:5672: Connection refused\n"
    )
    assert TextRedaction()(lines) == lines


def test_redaction_removes_known_secrets_and_tokens_without_a_key() -> None:
    redact = TextRedaction(["hunter2", "a"])
    assert redact("x hunter2 a") == f"x {HIDDEN} a"
    key = b64encode(bytes(range(48))).decode()
    assert redact(f"got {JWT} and {key}.") == f"got {HIDDEN} and {HIDDEN}."
    assert redact(f"got {bytes(range(16)).hex()}") == f"got {HIDDEN}"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a support bundle of a running broker, with secrets in all possible sources."""
    place = tmp_path_factory.mktemp("bundle")
    (place / "secrets").mkdir()
    files = {
        "token": SECRET % "token", "password": SECRET % "password", "secrets/site": SECRET % "site",
        "other-password": SECRET % "reference",
        "key.pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET % 'key'}\n-----END PRIVATE KEY-----\n",
    }  # fmt: skip
    for name, text in files.items():
        (place / name).write_text(text)
    log = [
        f"connecting to amqp://anna:{SECRET % 'url'}@host:5672",
        f"PUT https://{SECRET % 'user-info'}@host/path",
        f"Authorization: Bearer {SECRET % 'bearer'}",
        f"retry with password={SECRET % 'assigned'}",
        json.dumps({"event": "x", "token": SECRET % "json"}),
        *(f"a line with {SECRET % name} alone" for name in ("environment", "variable", "reference", "token", "site")),
    ]
    (place / "log").write_text("".join(f"{line}\n" for line in log))
    with broker(place / "store", "--metrics-port", "0") as running:
        metrics = running.wait_for(r" metrics at (http://127\.0\.0\.1:\d+/metrics)$")[1]
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        connection.create_sender("orders").send(Message(body=SECRET % "body", durable=True, id=SECRET % "id"))
        connection.close()
        connect_to = (
            f"amqp://anna@localhost:1?name=a&password-env=SITE_PW\", \"amqp://b@localhost:1?name=b&password-file="
            f"{place / 'other-password'}"
        )
        (place / "cairnmq.toml").write_text(
            f'store-dir = "{place / "store"}"\nmetrics-port = 0\nmetrics-token-file = "{place / "token"}"\n'
            f'connect-to-password-file = "{place / "password"}"\nsecrets-dir = "{place / "secrets"}"\n'
            f'log-file = "{place / "log"}"\nconnect-to = ["{connect_to}"]\ntls-key = "{place / "key.pem"}"\n'
        )
        done = subprocess.run(
            [CAIRNMQ, "support-bundle", "--config", str(place / "cairnmq.toml"), "--seconds", "0", "--metrics", metrics,
             "--to", str(place / "bundle.tar.gz")],
            capture_output=True, text=True, timeout=DEADLINE_S,
            env={**os.environ, "CAIRNMQ_PASSWORD": SECRET % "environment", "SITE_PW": SECRET % "variable",
                 "CAIRNMQ_CONNECT": f"postgresql://u:{SECRET % 'catalog'}@host/db"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return place


def members(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle / "bundle.tar.gz") as archive:
        found = {one.name.removeprefix("cairnmq-support/"): archive.extractfile(one) for one in archive}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def test_bundle_has_no_secret_and_no_message(bundle: Path) -> None:
    for name, text in members(bundle).items():
        assert not re.findall(r"s3cr3t-\S*", text), name


def test_bundle_has_what_a_report_needs(bundle: Path) -> None:
    found = members(bundle)
    assert stat.S_IMODE((bundle / "bundle.tar.gz").stat().st_mode) == 0o600
    assert "cairnmq_queue_messages" in found["metrics.txt"]
    assert found["log.txt"].startswith(f"connecting to amqp://{HIDDEN}@host:5672\n")
    assert found["log.txt"].count("\n") == 10
    rows = {row["option"]: row for row in json.loads(found["configuration.json"])}
    assert rows["metrics-port"]["source"].endswith("cairnmq.toml:2")
    assert rows["connect"]["value"] == f"postgresql://{HIDDEN}@host/db"
    assert {one["check"] for one in json.loads(found["doctor.json"])} > {"configuration", "permissions", "store"}
    assert json.loads(found["versions.json"])["packages"]["cairnmq"]
    assert any(row["size"] for row in json.loads(found["store.json"]))
    manifest = json.loads(found["manifest.json"])
    assert set(manifest["members"]) == found.keys() - {"manifest.json"}


def test_existing_file_is_not_overwritten(bundle: Path) -> None:
    before = (bundle / "bundle.tar.gz").read_bytes()
    done = subprocess.run(
        [CAIRNMQ, "support-bundle", "--seconds", "0", "--to", str(bundle / "bundle.tar.gz")],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert "exists" in done.stderr
    assert (bundle / "bundle.tar.gz").read_bytes() == before
