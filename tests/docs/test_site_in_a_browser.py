"""Tests of the documentation site in a real browser: search, page width on a phone, and rendering of diagrams.

A page in the browser visits the site in a frame and posts the results to the server of this test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEADLINE_S = 240
PHONE = 390
_FRAME = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<iframe id="site" style="width: WIDTHpx; height: 800px; border: 0"></iframe>
<script>
const frame = document.getElementById("site"), post = (found) =>
  fetch("/found", {method: "POST", body: JSON.stringify(found)});
const open = (url) => new Promise((done) => { frame.onload = done; frame.src = url; });
const until = (get) => new Promise((done) => {
  const look = () => { const found = get(); if (found) done(found); else setTimeout(look, 50); };
  look();
});
async function looks(pages) {
  const found = {};
  for (const page of pages) {
    await open(page);
    await until(() => frame.contentDocument.readyState === "complete");
    const root = frame.contentDocument.documentElement;
    const images = [...root.querySelectorAll("img")], sources = root.querySelectorAll("[class*=mermaid]");
    const failed = images.filter((one) => !one.naturalWidth).map((one) => one.src);
    found[page] = {widths: [root.scrollWidth, frame.contentWindow.innerWidth], failed, images: images.length,
      sources: sources.length};
  }
  return found;
}
async function search(text) {
  await open("/index.html");
  const page = frame.contentDocument, input = page.querySelector("[data-md-component=search-query]");
  input.focus();
  input.value = text;
  input.dispatchEvent(new frame.contentWindow.KeyboardEvent("keyup", {bubbles: true}));
  input.dispatchEvent(new frame.contentWindow.Event("input", {bubbles: true}));
  await until(() => page.querySelector(".md-search-result__item a"));
  const names = [...page.querySelectorAll(".md-search-result__item > a")].map((one) => one.getAttribute("href"));
  const loaded = frame.contentWindow.performance.getEntriesByType("resource").map((one) => one.name);
  return {names, loaded};
}
CALL.then(post, (error) => post({error: String(error)}));
</script>"""


class Visitor(SimpleHTTPRequestHandler):
    """An HTTP request handler that serves the site and receives the browser's results."""

    def do_POST(self) -> None:
        self.server.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def visited(site: Path, place: Path, width: int, call: str) -> Any:
    """Return the result of *call*, a JavaScript expression of the frame page, in a frame of *width* pixels."""
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    frame = site / "frame-of-test.html"
    frame.write_text(_FRAME.replace("WIDTH", str(width)).replace("CALL", call))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Visitor, directory=str(site)))
    server.found = Queue()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={place / 'profile'}",
        "--window-size=1400,900", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"http://127.0.0.1:{server.server_port}/{frame.name}",
    ]  # fmt: skip
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return server.found.get(timeout=DEADLINE_S)  # type: ignore[attr-defined]
    finally:
        browser.terminate()
        browser.wait(DEADLINE_S)
        server.shutdown()
        server.server_close()
        frame.unlink()


def test_pages_fit_a_phone_and_show_their_pictures(site: Path, tmp_path: Path) -> None:
    pages = sorted(f"/{path.relative_to(site)}" for path in site.rglob("*.html") if "decisions" not in path.parts)
    found = visited(site, tmp_path, PHONE, f"looks({json.dumps(pages)})")
    assert set(found) == set(pages), found
    assert {page: one for page, one in found.items() if one["widths"][0] > one["widths"][1]} == {}
    assert {page: one["failed"] for page, one in found.items() if one["failed"]} == {}
    assert [page for page, one in found.items() if one["sources"]] == [], "a diagram is shown as its source"
    assert found["/explanation/architecture.html"]["images"] == 4  # two are the logo


@pytest.mark.parametrize(
    ("text", "page"),
    [("dead letter", "dead-letters.html"), ("prefetch", "from-rabbitmq.html"), ("max-deliveries", "queues.html")],
)
def test_search_finds_pages(site: Path, tmp_path: Path, text: str, page: str) -> None:
    found = visited(site, tmp_path, 1200, f"search({json.dumps(text)})")
    assert "names" in found, found
    assert any(page in name for name in found["names"]), found["names"]
    assert all(name.startswith("http://127.0.0.1:") for name in found["loaded"]), found["loaded"]


@pytest.mark.parametrize("text", ["lock", "netem"])
def test_search_ranks_decisions_below_all_other_pages(site: Path, tmp_path: Path, text: str) -> None:
    found = visited(site, tmp_path, 1200, f"search({json.dumps(text)})")
    are_decisions = ["/decisions/" in name for name in found["names"]]
    assert are_decisions == sorted(are_decisions), found["names"]
    assert any(are_decisions) or text == "lock", "decisions are found where nothing else is"
