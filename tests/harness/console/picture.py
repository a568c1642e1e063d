"""Screenshots of the console, small enough for the documentation."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_BYTES = 100_000


def take(page: Page, path: Path) -> None:
    """Write the visible part of *page* to *path*, with 8 bits per pixel."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES, path
