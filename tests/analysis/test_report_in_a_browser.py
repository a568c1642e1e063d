"""Tests of the report in a browser: no overflow on a phone, no errors, no network, plots with readable axes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.harness.analysis.report_page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEADLINE_S = 180
_PROBE = """<script>
window.addEventListener("load", () => setTimeout(() => {
  const texts = (css) => [...document.querySelectorAll(css)].map((one) => one.textContent);
  const found = {
    inner: innerWidth, page: document.documentElement.scrollWidth,
    plots: [...document.querySelectorAll(".js-plotly-plot")].map((one) => ({
      id: one.id, width: one.querySelector(".main-svg").getBoundingClientRect().width,
      frame: one.parentElement.getBoundingClientRect().width,
      legends: one.querySelectorAll(".legendtext").length,
      x: [...one.querySelectorAll(".xtick text")].map((tick) => tick.textContent),
      overlap: (() => {
        const legend = one.querySelector(".legend .bg"), inner = one.querySelector(".plot");
        return legend && inner && legend.getBoundingClientRect().top < inner.getBoundingClientRect().bottom - 1;
      })(),
    })),
    colors: [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor,
             getComputedStyle(document.querySelector(".xtick text")).fill],
    resources: performance.getEntriesByType("resource").map((one) => one.name),
    images: document.querySelectorAll("section img").length,
  };
  parent.postMessage(JSON.stringify(found), "*");
}, 1500));
</script>"""
_FRAME = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><pre id="probe"></pre><script>
addEventListener("message", (told) => { document.getElementById("probe").textContent = told.data; });
</script><iframe src="report.html" style="width: WIDTHpx; height: 4000px; border: 0"></iframe>"""
"""A page with the report in a frame of the tested width, as browser windows are at least 500 pixels wide."""


def shown(place: Path, queues: int, hours: int, width: int, *options: str) -> dict[str, Any]:
    """Load a report in a browser and return the measurements of `_PROBE`."""
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    page = place / "report.html"
    write_report(page, queues, hours)
    page.write_text(page.read_text().replace("</body>", f"{_PROBE}</body>"))
    frame = place / "frame.html"
    frame.write_text(_FRAME.replace("WIDTH", str(width)))
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={place / 'profile'}",
         "--window-size=1400,4200", "--virtual-time-budget=20000", "--enable-logging=stderr", "--dump-dom",
         "--host-resolver-rules=MAP * ~NOTFOUND", *options, frame.as_uri()],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    assert not (said := [line for line in done.stderr.splitlines() if "CONSOLE" in line]), said
    probed = re.search(r'<pre id="probe">({.*?)</pre>', done.stdout, re.DOTALL)
    assert probed, done.stdout[-2000:]
    found: dict[str, Any] = json.loads(unescape(probed[1]))
    assert found["resources"] == []
    assert found["images"] == 0  # queue names are escaped
    return found


@pytest.mark.parametrize(("queues", "hours"), [(20, 30), (3, 1)])
def test_report_fits_a_phone(tmp_path: Path, queues: int, hours: int) -> None:
    found = shown(tmp_path, queues, hours, 400)
    assert found["inner"] == 400
    assert found["page"] <= found["inner"]
    for plot in found["plots"]:
        assert plot["width"] <= plot["frame"] + 1, plot
        assert not plot["overlap"], plot


def test_report_has_readable_axes_and_short_legends(tmp_path: Path) -> None:
    found = shown(tmp_path, 20, 30, 1280)
    plots = {plot["id"]: plot for plot in found["plots"]}
    assert len(plots) == 10
    for name in ("plot-depth", "plot-throughput", "plot-lifetimes", "plot-space"):
        ticks = [tick for tick in plots[name]["x"] if tick]
        assert 3 <= len(ticks) <= 12, ticks
        assert all(re.fullmatch(r"\d\d:\d\d(May \d+, 2026)?", tick) for tick in ticks), ticks
    assert all(plot["legends"] <= 9 for plot in plots.values())


def test_report_of_one_point_of_time_has_bars(tmp_path: Path) -> None:
    found = shown(tmp_path, 12, 1, 1280)
    ticks = {plot["id"]: plot["x"] for plot in found["plots"]}
    assert "plot-groups" not in ticks  # a single point is not plotted
    for name in ("plot-depth", "plot-throughput", "plot-lifetimes", "plot-space"):
        assert ticks[name]
        assert not any(":" in tick for tick in ticks[name]), ticks[name]


def test_report_is_dark_where_the_system_is(tmp_path: Path) -> None:
    light = shown(tmp_path, 3, 30, 1280)["colors"]
    dark = shown(tmp_path, 3, 30, 1280, "--blink-settings=preferredColorScheme=0")["colors"]
    assert light[0] == light[2]  # plot axes have the color of the text
    assert dark[0] == dark[2]
    assert sum(map(int, re.findall(r"\d+", dark[1])[:3])) < 150 < sum(map(int, re.findall(r"\d+", light[1])[:3]))
