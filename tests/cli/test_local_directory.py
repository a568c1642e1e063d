"""Tests that commands that create a directory refuse a URL, and do not create a directory of that name."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from cairnmq.base.errors import InvalidOption
from cairnmq.cli.main import cairnmq

COMMANDS = {
    "broker --store-dir": ["broker", "--store-dir", "URL"],
    "broker --archive-dir": ["broker", "--store-dir", "x", "--archive-dir", "URL"],
    "broker --export-to": ["broker", "--store-dir", "x", "--export-to", "URL"],
    "perftest --soak": ["perftest", "--soak", "1s", "--store-dir", "URL"],
    "backup": ["backup", ".", "URL"],
    "restore": ["restore", "x", "URL"],
    "load": ["load", "URL", "lines"],
    "salvage": ["salvage", "x", "--to", "URL"],
    "as-of --restore": ["as-of", "x", "end", "--restore", "URL"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("url", ["s3://bucket/store", "dbfs:/x"])
def test_directory_on_an_object_store_is_refused(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [url if one == "URL" else one for one in COMMANDS[name]]
    with pytest.raises(InvalidOption, match=f"{url}: stores and archives are on file systems only; mount it"):
        cairnmq.main(arguments, standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_directory_with_a_colon_in_its_name_is_accepted() -> None:
    command = cairnmq.get_command(click.Context(cairnmq), "load")
    assert command is not None
    with click.Context(command) as context:
        target = next(one for one in command.params if one.name == "target")
        assert target.type.convert("./dbfs:x", target, context) == "./dbfs:x"
