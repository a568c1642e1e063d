"""Tests that the screenshots of the documentation can be taken and are used by its pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from tests.conftest import Tell
from tests.console import screenshots
from tests.harness.console.chromium import DESKTOP, HEIGHTS
from tests.harness.console.picture import MOST_BYTES

DOCS = screenshots.IMAGES.parent
WIDTHS = {name: width for name, width, _, _ in screenshots.PICTURES} | {screenshots.CLUSTER: DESKTOP}
MOST_OF_ONE_COLOR = 0.97
FEWEST_COLORS = 32


def check(path: Path, width: int) -> str:
    """Check that *path* is a screenshot *width* pixels wide that is not blank, and return its properties."""
    assert path.stat().st_size < MOST_BYTES
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.size == (width, HEIGHTS[width])
        colors = image.convert("RGB").getcolors(1 << 24) or []
    share = max(count for count, _ in colors) / (width * HEIGHTS[width])
    assert len(colors) >= FEWEST_COLORS, "a blank page has few colors"
    assert share < MOST_OF_ONE_COLOR
    return f"{path.name}: {len(colors)} colors, {share:.0%} of the first one"


def test_docs_use_the_screenshots_that_are_taken() -> None:
    expected = {screenshots.path_in(screenshots.IMAGES, name).name for name in WIDTHS}
    assert {path.name for path in screenshots.IMAGES.glob("console-*.png")} == expected
    pages = "\n".join(path.read_text() for path in DOCS.rglob("*.md"))
    assert set(re.findall(r"images/(console-[\w-]+\.png)", pages)) == expected


@pytest.mark.parametrize("name", WIDTHS)
def test_screenshot_of_the_docs_shows_a_page(name: str) -> None:
    check(screenshots.path_in(screenshots.IMAGES, name), WIDTHS[name])


def test_screenshots_are_taken(tmp_path: Path, tell: Tell) -> None:
    screenshots.take_shop(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(screenshots.PICTURES)
    for name, width, _, _ in screenshots.PICTURES:
        tell(check(screenshots.path_in(tmp_path, name), width))


@pytest.mark.timeout(900)
def test_screenshot_of_a_cluster_is_taken(tmp_path: Path, tell: Tell) -> None:
    if reason := unavailable_reason():
        pytest.skip(f"no corosync: {reason}")
    screenshots.take_cluster(tmp_path)
    tell(check(screenshots.path_in(tmp_path, screenshots.CLUSTER), DESKTOP))


def test_blank_page_is_found(tmp_path: Path) -> None:
    path = tmp_path / "blank.png"
    image = Image.new("RGB", (DESKTOP, HEIGHTS[DESKTOP]), "white")
    image.save(path)
    with pytest.raises(AssertionError, match="few colors"):
        check(path, DESKTOP)
