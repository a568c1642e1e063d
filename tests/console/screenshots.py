"""Program that takes the console screenshots of the documentation: `python -m tests.console.screenshots`.

The screenshot of the cluster requires root and corosync.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.harness.console import picture
from tests.harness.console.chromium import DESKTOP, PHONE, ConsolePage, chromium
from tests.harness.console.cluster_site import cluster_site
from tests.harness.console.shop import Shop
from tests.harness.console.site import filled

IMAGES = Path(__file__).parents[2] / "docs/images"
DEAD = ("queues", "orders.dead", "messages")
TIMELINE, SITES = ("trace", "?message_id=order-4711"), ("trace", "?message_id=return-4711")
PICTURES: tuple[tuple[str, int, str, tuple[str, ...]], ...] = (
    ("queues", DESKTOP, "light", ("queues",)),
    ("queues-dark", DESKTOP, "dark", ("queues",)),
    ("dead-letters", DESKTOP, "light", DEAD),
    ("message", DESKTOP, "light", (*DEAD, "1")),
    ("timeline", DESKTOP, "light", TIMELINE),
    ("timeline-dark", DESKTOP, "dark", TIMELINE),
    ("timeline-sites", DESKTOP, "light", SITES),
    ("time", DESKTOP, "light", ("time",)),
    ("journal", DESKTOP, "light", ("journal",)),
    ("exchanges", DESKTOP, "light", ("exchanges", "shop")),
    ("transactions", DESKTOP, "light", ("transactions",)),
    ("users", DESKTOP, "light", ("users",)),
    ("phone", PHONE, "light", DEAD),
)
"""Screenshots: name, width, color scheme, and parts of the address; a part with a question mark is the query."""
CLUSTER = "cluster"
"""Name of the screenshot of a cluster."""


def take(console: ConsolePage, path: Path) -> None:
    """Write a screenshot of the window to *path*."""
    console.page.mouse.move(0, 0)
    console.page.wait_for_function("() => document.querySelectorAll('.toast').length === 0")
    picture.take(console.page, path)


def path_in(directory: Path, name: str) -> Path:
    return directory / f"console-{name}.png"


def take_shop(directory: Path) -> None:
    """Write all screenshots except that of the cluster."""
    with (
        tempfile.TemporaryDirectory() as place,
        chromium() as browser,
        filled(Shop(Path(place), "refunds")) as shop,
    ):
        for name, width, scheme, parts in PICTURES:
            address = [part for part in parts if not part.startswith("?")]
            query = "".join(part for part in parts if part.startswith("?"))
            console = ConsolePage(browser, shop.url, width, scheme).sign_in().open(*address, query=query)
            take(console, path_in(directory, name))
            console.close()


def take_cluster(directory: Path) -> None:
    """Write the screenshot of a cluster with a stopped member."""
    with tempfile.TemporaryDirectory() as place, cluster_site(Path(place)) as site, site.browser(1) as browser:
        site.fill()
        site.scenario.brokers[3].stop()
        console = ConsolePage(browser, site.url(1)).sign_in("", "").open("cluster")
        console.wait_for_text("1 member is stopped or unreachable.")
        take(console, path_in(directory, CLUSTER))
        console.close()


if __name__ == "__main__":
    take_shop(IMAGES)
    take_cluster(IMAGES)
