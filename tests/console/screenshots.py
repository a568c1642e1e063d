"""Takes the screenshots of the console for the documentation: `python -m tests.console.screenshots`."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from tests.harness.console.chromium import DESKTOP, PHONE, ConsolePage, chromium
from tests.harness.console.site import ConsoleSite

IMAGES = Path(__file__).parents[2] / "docs/images"
MOST_BYTES = 100_000
DEAD = ("queues", "orders.dead", "messages")
PICTURES: tuple[tuple[str, int, str, tuple[str, ...]], ...] = (
    ("queues", DESKTOP, "light", ("queues",)),
    ("queues-dark", DESKTOP, "dark", ("queues",)),
    ("dead-letters", DESKTOP, "light", DEAD),
    ("message", DESKTOP, "light", (*DEAD, "1")),
    ("phone", PHONE, "light", DEAD),
)
"""Name, width, color scheme and address."""


def take(console: ConsolePage, path: Path) -> None:
    """Write what the window shows, with 8 bits for each pixel."""
    image = Image.open(io.BytesIO(console.page.screenshot())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES, path


def main() -> None:
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        site = ConsoleSite(Path(place))
        try:
            site.fill()
            for name, width, scheme, parts in PICTURES:
                console = ConsolePage(browser, site.url, width, scheme).sign_in().open(*parts)
                take(console, IMAGES / f"console-{name}.png")
                console.close()
        finally:
            site.stop()


if __name__ == "__main__":
    main()
