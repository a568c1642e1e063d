"""Tests of `cairnmq man`, which shows the manual without installed man pages."""

from __future__ import annotations

from click.testing import CliRunner

from cairnmq.cli.main import COMMANDS, cairnmq


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(cairnmq, ["man", *arguments])
    assert result.exit_code == 0, result
    return result.stdout


def test_manual_without_a_command_lists_all_commands() -> None:
    lines = [line.split()[0] for line in shown().splitlines() if line.startswith("  ") and line.strip()]
    assert set(COMMANDS) <= set(lines)


def test_manual_of_a_group_contains_its_commands() -> None:
    text = shown("users")
    assert "CAIRNMQ USERS ADD\n\nUsage: cairnmq users add [OPTIONS] NAME\n" in text
    assert shown("users", "add") in text


def test_manual_of_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(cairnmq, ["man", "users", "nope"])
    assert (result.exit_code, "No such command 'users nope'; see cairnmq --help." in result.stderr) == (2, True)
