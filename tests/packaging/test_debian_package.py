"""Tests of the Debian package on a minimal Debian with systemd: installation, use, upgrade, removal."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Tell
from tests.harness.thorough import THOROUGH, amount

from ..fresh_machine.machine import SANDBOXES, Machine, Unavailable, reason_against
from ..readme_blocks import section
from . import service
from .booted import NotBooted, booted
from .conftest import PACKAGING, ROOT, run

UNIT = PACKAGING / "debian/cairnmq.service"


def thorough(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that creates a separate system, for thorough runs only."""
    for mark in (
        pytest.mark.slow,
        pytest.mark.timeout(3600),
        pytest.mark.skipif(not THOROUGH, reason="for thorough runs (CAIRN_THOROUGH=1)"),
    ):
        test = mark(test)
    return test


def test_page_shows_the_unit_of_the_package() -> None:
    page = (ROOT / "docs/how-to/systemd.md").read_text()
    [shown] = re.findall(r"```ini title=\"cairnmq.service\"\n(.*?)```", page, re.S)
    assert shown == UNIT.read_text()


def test_configuration_of_the_package_is_valid(tmp_path: Path) -> None:
    text = (PACKAGING / "debian/cairnmq.toml").read_text()
    (tmp_path / "cairnmq.toml").write_text(text.replace("/var/l", f"{tmp_path}/l"))
    assert "OK" in run(Path(sys.executable).with_name("cairnmq"), "config", "check", tmp_path / "cairnmq.toml")


def test_readers_of_history_may_lower_their_priority() -> None:  # A13
    """The last filter that names a system call, or a group with it, decides."""
    filters = [line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith("SystemCallFilter=")]
    named = [one for one in filters if re.search(r"setpriority|@resources", one)]
    assert named
    assert not named[-1].startswith("~")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd-analyze")
def test_unit_is_hardened() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=29", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd is too old for --offline")
    [exposure] = re.findall(r"Overall exposure level for cairnmq.service: ([\d.]+)", done.stdout)
    assert float(exposure) < 3.0
    assert done.returncode == 0


@contextmanager
def machine(release: str, tell: Tell) -> Iterator[Machine]:
    """Yield a minimal system, which is removed at the end; skip the test if it cannot be created or booted."""
    reason = reason_against()
    try:
        made = Machine(release) if reason is None else None
    except Unavailable as error:
        made, reason = None, str(error)
    if made is None:
        tell(f"the Debian package is not tested, because no system can be made here: {reason}")
        pytest.skip(f"no Debian system can be made here: {reason}")
    try:
        yield made
    except NotBooted as error:
        tell(f"the Debian package is not tested, because systemd does not run here: {error}")
        pytest.skip(f"systemd does not run here: {error}")
    finally:
        made.close()
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(SANDBOXES) in line]


def live(there: Machine) -> None:
    """Boot the system with the installed package, and run all service checks."""
    service.next_revision(there)
    with booted(there) as system:
        service.use(system)
        service.hang(system)
        service.upgrade_and_downgrade(system)
        service.fail_to_start(system)
        service.configure(system)
        service.remove(system)


@thorough
def test_package_is_used_upgraded_and_removed_on_debian_12(package: Path, tell: Tell) -> None:
    with machine("bookworm", tell) as there:
        shutil.copy(package, there.place / "root/first.deb")
        there.run(
            f"apt-get update\napt-get install -y --no-install-recommends {service.PACKAGES} /root/first.deb",
            online=True,
        )
        live(there)


@pytest.mark.skipif(not amount("CAIRN_DEBIAN_13", 0, 0), reason="for `make nightly` (CAIRN_DEBIAN_13=1)")
@thorough
def test_package_is_built_used_upgraded_and_removed_on_debian_13(tell: Tell) -> None:
    """Build the package with the commands of the page, for the Python of Debian 13."""
    with machine("trixie", tell) as there:
        there.run(f"apt-get update\napt-get install -y --no-install-recommends {service.PACKAGES}", online=True)
        [build], [install] = section(service.PAGE, "Build"), section(service.PAGE, "Install")
        there.run(build.text, online=True)
        there.run(install.commands[0].replace("install", "install -y", 1), online=True)
        there.run("cp dist/*.deb /root/first.deb")
        live(there)
