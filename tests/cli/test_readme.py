"""Tests of the length and the facts of README.md. tests/cli/test_examples.py executes its program."""

from __future__ import annotations

import re
from pathlib import Path

from tests.readme_blocks import blocks_of, readme, section

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LINES = 160


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= LINES


def test_first_screen_names_the_protocol() -> None:
    assert "AMQP 1.0 only, not 0-9-1" in "\n".join(README.splitlines()[:10])


def test_first_block_clones_and_runs() -> None:
    first = next(block for block in blocks_of(ROOT / "README.md"))
    packages, clone, run = first.commands
    assert packages.split("-y ")[1].split() == ["git", "make"]
    assert clone.startswith("git clone ")
    assert run == "make run"


def test_packages_of_the_installation_by_hand_are_the_ones_the_script_installs() -> None:
    [line] = [one for one in section("how-to/install.md", "From a checkout")[0].commands if "apt-get install" in one]
    assert line.split("-y ")[1].split() == ["git", "make", *(ROOT / "scripts/debian-packages").read_text().split()]


def test_the_test_command_is_what_ci_runs() -> None:
    [block] = readme("Develop CairnMQ itself")
    assert block.commands == ["make test"]
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("\nmake test")


def test_every_file_the_readme_names_is_there() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README)
    assert len(targets) > 20
    assert [target for target in targets if not (ROOT / target).exists()] == []
