"""Tests that execute tutorials, guides and the home page as written, with real brokers and the clients they name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.readme_blocks import DOCS, blocks_of, section

from .walk import executed_blocks, is_executable, reader

_EXECUTED = (DOCS, DOCS / "tutorials", DOCS / "how-to")
PAGES = [
    str(path.relative_to(DOCS))
    for folder in _EXECUTED
    for path in sorted(folder.glob("*.md"))
    if any(is_executable(block) for block in executed_blocks(str(path.relative_to(DOCS))))
]
PAGES.append("reference/python.md")
PASSWORD = "one stone on another"
TLS = "how-to/tls-and-users.md"


@pytest.mark.parametrize("page", PAGES)
def test_page_works_as_written(page: str, tmp_path: Path) -> None:
    if "cluster-lab" in (DOCS / page).read_text() and (reason := unavailable_reason()):
        pytest.skip(f"no lab: {reason}")
    with reader(tmp_path) as walk:
        for block in executed_blocks(page):
            walk.execute(block)


def test_every_tutorial_is_executed() -> None:
    tutorials = {f"tutorials/{path.name}" for path in (DOCS / "tutorials").glob("*.md") if path.stem != "index"}
    assert len(tutorials) >= 9
    assert tutorials - set(PAGES) == set()


def test_pages_name_tests_that_exist() -> None:
    named = {
        (path.name, name)
        for folder in (*_EXECUTED, DOCS / "reference", DOCS / "explanation")
        for path in folder.glob("*.md")
        for name in re.findall(r"\btests/[a-z_/]+\.py\b", path.read_text())
    }
    assert named
    assert [one for one in sorted(named) if not (DOCS.parent / one[1]).exists()] == []


def test_users_log_in_with_the_certificates_of_the_guide(tmp_path: Path) -> None:
    users, certificates, start, use, _ = section(TLS, None)
    [rules] = [block for block in blocks_of(DOCS / "how-to/access-rules.md") if block.title == "rules.toml"]
    (tmp_path / "rules.toml").write_text(rules.text)
    for command in (*users.commands, *certificates.commands):
        run(command, tmp_path, stdin=f"{PASSWORD}\n")
    [command], asks = start.commands, use.commands
    options = command.split("--store-dir ./data ")[1].replace("./", f"{tmp_path}/").replace("5671", "0").split()
    with broker(tmp_path / "data", *options) as running:
        port = running.wait_for(r" listening with TLS on 127\.0\.0\.1:(\d+)$")[1]
        for ask in asks:
            url = f"amqp://127.0.0.1:{running.port}"
            run(ask.replace(":5671", f":{port}"), tmp_path, CAIRNMQ_PASSWORD=PASSWORD, CAIRNMQ_URL=url)
        assert len(asks) == 2
    assert (tmp_path / "broker.pem").stat().st_mode & 0o777 == 0o600, "the private key is in it"


@pytest.mark.parametrize("page", ["how-to/access-rules.md", "reference/access.md"])
def test_rules_of_the_guide_are_accepted(page: str, tmp_path: Path) -> None:
    texts = [block.text for block in blocks_of(DOCS / page) if block.language == "toml"]
    assert texts
    for number, text in enumerate(texts):
        (tmp_path / "rules.toml").write_text(text)
        with broker(tmp_path / f"data{number}", "--acl-file", str(tmp_path / "rules.toml"), "--anonymous") as running:
            assert running.stop() == 0


def test_damaged_store_is_salvaged_as_the_guide_shows(tmp_path: Path) -> None:
    with reader(tmp_path) as walk:
        for block in executed_blocks("how-to/backup.md"):
            walk.execute(block)
    [salvage] = section("how-to/backup.md", "If files are damaged")
    run(salvage.text, tmp_path)
    with broker(tmp_path / "salvaged") as running:
        running.wait_for(r"recovered 1 message on 1 queue")
    with broker(tmp_path / "restored") as running:
        running.wait_for(r"recovered 1 message on 1 queue")


def test_loads_and_soak_of_the_guide(tmp_path: Path) -> None:
    measure, soak = section("how-to/sizing.md", None)
    calibrate, load = measure.commands
    run(calibrate, tmp_path)
    with broker(tmp_path / "data") as running:
        loaded = run(load, tmp_path, CAIRNMQ_URL=f"amqp://127.0.0.1:{running.port}")
    assert "40,000 transfers of 256 bytes" in loaded
    assert run(soak.text, tmp_path).splitlines()[-1].startswith("PASSED: ")


def run(command: str, place: Path, stdin: str = "", **environment: str) -> str:
    """Run a command of a page, and return its output."""
    words = command.strip().replace("venv/bin/", "").replace("cairnmq ", f"{shlex.quote(CAIRNMQ)} ", 1)
    done = subprocess.run(
        words, shell=True, input=stdin, capture_output=True, text=True, timeout=4 * DEADLINE_S, cwd=place,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stderr)
    assert re.search("openssl", command) or done.stderr == "", (command, done.stderr)
    return done.stdout
