"""Test that executes the page "Operate CairnMQ for a day" on a minimal Debian, with a browser on another machine.

With `CAIRN_PICTURES=docs/images` the test replaces the pictures of the page.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Tell
from tests.harness.console.chromium import CHROMIUM, ConsolePage, chromium
from tests.harness.console.picture import take
from tests.harness.console.site import PASSWORD
from tests.readme_blocks import DOCS, Block, blocks_of

from ..fresh_machine.machine import Machine, Stopwatch, Unavailable, reason_against
from .booted import Booted, NotBooted, booted
from .workstation import Workstation, workstation

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGE = DOCS / "how-to/operate-for-a-day.md"
BROKER, WORKSTATION = "broker.example", "workstation"
PICTURES = [Path(name).name for name in re.findall(r"\.\./images/([\w-]+\.png)", PAGE.read_text())]
PACKAGE = re.compile(r"cairnmq_[\d.]+-(\d)_\w+\.deb")
DOWNLOADS = "/srv/downloads"
PREPARE = f"""
cd {DOWNLOADS}
apt-get update
apt-get install -y --no-install-recommends systemd sudo ca-certificates
rm /usr/local/bin/sudo
apt-get install -y --download-only ./FIRST
apt-get install -y --download-only --no-install-recommends prometheus
dpkg-deb -R FIRST next
sed -i 's/^Version: .*-1$/Version: VERSION-2/' next/DEBIAN/control
dpkg-deb -b -Znone next NEXT
rm -r next
"""
SPKI = """
openssl x509 -in /etc/cairnmq/cert.pem -pubkey -noout | openssl pkey -pubin -outform der | base64 -w0
"""
QUERY = 'ALERTS{alertname="OrdersFailed",alertstate="firing"}'
FIRING = f"promtool query instant http://127.0.0.1:9090 '{QUERY}' | grep -c OrdersFailed || true"


@pytest.fixture(scope="module")
def downloaded(package: Path, tell: Tell) -> Iterator[Booted]:
    """Yield a booted minimal system with the page's packages, which are not installed yet."""
    reason = reason_against() or (None if CHROMIUM else "not installed: chromium")
    try:
        machine = Machine("bookworm") if reason is None else None
    except Unavailable as error:
        machine, reason = None, str(error)
    if machine is None:
        tell(f"a day of an operator is not tested, because no system can be made here: {reason}")
        pytest.skip(f"no Debian system can be made here: {reason}")
    try:
        (machine.place / DOWNLOADS[1:]).mkdir()
        shutil.copy(package, machine.place / DOWNLOADS[1:])
        names = {"FIRST": package.name, "NEXT": package.name.replace("-1_", "-2_")}
        version = package.name.split("_")[1].removesuffix("-1")
        script = re.sub("FIRST|NEXT", lambda match: names[match[0]], PREPARE).replace("VERSION", version)
        machine.run(script, online=True)
        with booted(machine) as running:
            yield running
    except NotBooted as error:
        tell(f"a day of an operator is not tested, because systemd does not run here: {error}")
        pytest.skip(f"systemd does not run here: {error}")
    finally:
        machine.close()


class Day:
    """An execution of the page, section by section, that takes its pictures in order."""

    def __init__(self, system: Booted, station: Workstation, package: str, place: Path) -> None:
        self.system = system
        self.station = station
        self._package = package
        self._place = place
        self._blocks = [block for block in blocks_of(PAGE) if block.language]
        self._pictures = iter(PICTURES)
        self.watch = Stopwatch()
        """Stopwatch with a lap for the commands of each section; browser actions count for the next section."""

    def execute(self, heading: str, count: int | None = None) -> str:
        """Execute the next blocks of a section, and return the output of the last one."""
        output = ""
        mine = [block for block in self._blocks if block.section == heading][:count]
        assert mine, heading
        for block in mine:
            assert self._blocks.pop(0) is block, f"a block before {block} is not executed"
            output = self._execute(block)
        self.watch.lap(heading)
        return output

    def _execute(self, block: Block) -> str:
        if block.title == BROKER:
            return "".join(self._command(command) for command in block.commands)
        if block.title == WORKSTATION:
            words = [command.split()[1:] for command in block.commands]
            return "".join(self.station.python(*found, SHOP_PASSWORD=PASSWORD) for found in words)
        if block.title.startswith("/"):
            return self.system.run(f"cat > {block.title} <<'END'\n{block.text}END\n")
        (self.station.place / block.title).write_text(block.text)
        return ""

    def _command(self, command: str) -> str:
        command = PACKAGE.sub(lambda match: self._package.replace("-1_", f"-{match[1]}_"), command)
        given = f"printf '%s\\n' {PASSWORD} | " if " users add " in command else ""
        return self.system.run(f"cd {DOWNLOADS}; export CAIRNMQ_PASSWORD={PASSWORD}; {given}{command}")

    def picture(self, page: Page) -> None:
        """Take the next picture, a screenshot of *page*."""
        take(page, self._place / next(self._pictures))

    def end(self) -> None:
        assert self._blocks == []
        assert list(self._pictures) == []


def messages(console: ConsolePage, queue: str) -> list[str]:
    """Return the names of the messages that the console shows."""
    page = console.open("queues", queue, "messages").page
    return [link.inner_text() for link in page.locator("main tbody a").all()]


def retry(console: ConsolePage) -> None:
    """Retry all messages of the dead-letter queue."""
    console.open("queues", "orders.failed", "messages")
    console.page.locator("main thead input[type=checkbox]").check()
    console.click("Retry")
    console.page.locator("dialog").get_by_role("button", name="Retry", exact=True).click()
    console.wait_for_text("Retried 1 message")


def trusting(system: Booted, station: Workstation) -> tuple[str, str, str]:
    """Return browser options that resolve the broker's name and accept only its certificate."""
    key = base64.b64encode(hashlib.sha256(base64.b64decode(system.run(SPKI))).digest()).decode()
    resolve = f"--host-resolver-rules=MAP {station.name} {station.address}"
    return f"--ignore-certificate-errors-spki-list={key}", resolve, "--no-proxy-server"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_day_of_an_operator(downloaded: Booted, package: Path, tmp_path: Path, tell: Tell) -> None:
    pictures = Path(os.environ.get("CAIRN_PICTURES", tmp_path))
    system = downloaded
    with workstation(system, tmp_path, BROKER) as station:
        day = Day(system, station, package.name, pictures)
        assert "active" in day.execute("Install the package").split()
        day.execute("Create users")
        system.wait_for("systemctl is-active cairnmq || true", "active")
        (station.place / "cert.pem").write_text(system.run("cat /etc/cairnmq/cert.pem"))
        with chromium(*trusting(system, station)) as browser:
            console = ConsolePage(browser, f"https://{BROKER}:8161").sign_in().open("queues")
            assert {"orders", "orders.failed"} <= {*console.text().split()}
            day.picture(console.page)

            # a dead letter, its history, and its retry
            assert day.execute("Find a dead-lettered message") == "reject order-17: ten stones\n"
            assert messages(console, "orders.failed") == ["order-17"]
            assert "rejected in orders" in console.text()
            day.picture(console.page)
            console.page.get_by_role("link", name="order-17").click()
            console.wait_for_text("order-17: ten stones", "main pre")
            console.page.get_by_role("link", name="Timeline", exact=True).click()
            console.wait_for_text("Lifetime", "main")
            console.settle()
            for event in ("Arrived", "Acquired", "Dequeued"):
                assert event in console.text(), console.text()
            day.picture(console.page)
            retry(console)
            assert messages(console, "orders.failed") == []
            assert messages(console, "orders") == ["order-18", "order-17"]
            console.open("queues")
            day.picture(console.page)
            assert day.execute("Retry it") == "accept order-18: ten stones\n"

            # an alert that fires and resolves
            assert "SUCCESS" in day.execute("Set an alert", 4)
            system.wait_for("systemctl is-active prometheus || true", "active")
            system.wait_for(FIRING, "0")
            assert day.execute("Set an alert") == "reject order-17: ten stones\n"
            system.wait_for(FIRING, "1")
            alerts = browser.new_page()
            alerts.goto(f"http://{BROKER}:9090/classic/alerts")
            alerts.get_by_text("OrdersFailed (1 active)").click()
            alerts.locator(".state_indicator:visible").scroll_into_view_if_needed()
            day.picture(alerts)
            retry(console)
            system.wait_for(FIRING, "0")

            # an upgrade keeps the messages, and a backup has them
            upgraded = day.execute("Upgrade the package")
            assert "all is well" in upgraded
            assert system.run("dpkg-query -W -f '${Version}' cairnmq").endswith("-2")
            console.close()
            console = ConsolePage(browser, f"https://{BROKER}:8161").sign_in()
            assert messages(console, "orders") == ["order-17"]
            console.open("queues")
            day.picture(console.page)
            assert "ten stones" in day.execute("Restore the backup")
            console.close()
            console = ConsolePage(browser, f"https://{BROKER}:8161").sign_in()
            assert messages(console, "orders") == ["order-17"]
            day.picture(console.page)
        received = station.python("shop.py", "accept", SHOP_PASSWORD=PASSWORD)
        assert received == "accept order-17: ten stones\n"
        day.end()
    tell(f"a day of an operator: {day.watch}")
