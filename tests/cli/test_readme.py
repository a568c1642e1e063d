"""Tests of the length and the facts of README.md. tests/cli/test_examples.py executes its program."""

from __future__ import annotations

import re
from pathlib import Path

from tests.readme_blocks import readme

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LINES = 150


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= LINES


def test_first_screen_names_the_protocol() -> None:
    assert "AMQP 1.0 only, not 0-9-1" in "\n".join(README.splitlines()[:10])


def test_the_packages_the_readme_names_are_the_ones_the_script_installs() -> None:
    [line] = [line for block in readme("Quick start") for line in block.commands if "apt-get install" in line]
    assert line.split("-y ")[1].split() == (ROOT / "scripts/debian-packages").read_text().split()


def test_the_readme_starts_a_broker_with_the_defaults() -> None:
    assert readme("Quick start")[0].commands[-1] == "venv/bin/cairnmq broker --store-dir ./data"


def test_the_test_command_is_what_ci_runs() -> None:
    [block] = readme("Develop CairnMQ itself")
    assert block.commands == ["make test"]
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("\nmake test")


def test_every_file_the_readme_names_is_there() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README)
    assert len(targets) > 20
    assert [target for target in targets if not (ROOT / target).exists()] == []
