"""Tests of sizes and durations in options."""

from __future__ import annotations

import click
import pytest

from cairnmq.base.errors import CairnError, InvalidOption
from cairnmq.cli.common.units import SIZE, Duration, SizeRange

SIZES = {
    "512": 512, "512B": 512, "4K": 4096, "4KiB": 4096, "4kb": 4000, "64M": 64 << 20, "64MiB": 64 << 20,
    "1GB": 10**9, "1 GiB": 1 << 30, "2t": 2 << 40, "2TiB": 2 << 40,
}  # fmt: skip


def test_error_names_the_first_long_spelling_of_the_option() -> None:
    option = click.Option(["-p", "--pause-time", "--pause_time"])
    with pytest.raises(InvalidOption, match=r"^--pause-time 5x: invalid duration"):
        Duration().convert("5x", option, None)


@pytest.mark.parametrize("text", SIZES)
def test_size_has_units_of_1024_and_of_1000(text: str) -> None:
    assert SIZE.convert(text, None, None) == SIZES[text]


@pytest.mark.parametrize("text", ["", "1GBx", "GB", "1Ki", "-1", "0", "1.5G", "1 0"])
def test_size_that_is_invalid_is_refused_with_examples(text: str) -> None:
    with pytest.raises(CairnError, match=f"size {text}: invalid size; give bytes, or .*, like 512K, 64MiB or 1GB"):
        SIZE.convert(text, None, None)


DURATIONS = {"30": 30, "500ms": 0.5, "1.5s": 1.5, "30s": 30, "10 m": 600, "2H": 7200, "7d": 7 * 86_400, "1w": 604_800}


@pytest.mark.parametrize("text", DURATIONS)
def test_duration_has_units_and_is_seconds_without_one(text: str) -> None:
    assert Duration(0).convert(text, None, None) == DURATIONS[text]


@pytest.mark.parametrize("text", ["", "7MB", "7y", "-1s", "nan", "inf", "s", "1h30m", "1e3"])
def test_duration_that_is_invalid_is_refused_with_examples(text: str) -> None:
    expected = f"duration {text}: invalid duration; give a number with a unit, like 500ms"
    with pytest.raises(InvalidOption, match=expected):
        Duration(0).convert(text, None, None)


def test_duration_has_bounds() -> None:
    with pytest.raises(click.BadParameter, match="is not in the range"):
        Duration(3, 3600).convert("2s", None, None)


def test_size_with_bounds_has_units() -> None:
    option = SizeRange(512, 1 << 20)
    assert option.name == "size range", "help texts show it"
    assert [option.convert(text, None, None) for text in ("512", "4KiB", "1M")] == [512, 4096, 1 << 20]
    assert option.convert(1024, None, None) == 1024
    for text in ("511", "-1", "2M"):
        with pytest.raises(click.BadParameter, match="is not in the range"):
            option.convert(text, None, None)
    with pytest.raises(CairnError, match="size 4Kx: invalid size; give bytes"):
        option.convert("4Kx", None, None)
