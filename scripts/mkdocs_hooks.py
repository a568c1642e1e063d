"""Hooks of MkDocs that add pages from the repository root to the site and adapt links that lead out of docs/.

In the repository, links lead from file to file. In the site, ARCHITECTURE.md, CHANGELOG.md, CONTRIBUTING.md and
SECURITY.md are pages, README.md is the home page, and links to other files of the repository are rendered as text.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES_OF_ROOT = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages of the site for files in the repository root."""
_PLACES = {**PAGES_OF_ROOT, "README.md": "index.md"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_FILE_NAME = re.compile(r"`?[\w/-]+\.md`?")
_TITLE = re.compile(r"^# (.+)$", re.M)
_SHORT_CODE = re.compile(r"<code>(?=[^<\n]{1,28}</code>)")
_CODE = re.compile(r"(```.*?^ *```|`[^`\n]*`)", re.M | re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages for files in the repository root."""
    for name, place in PAGES_OF_ROOT.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links and images to files of the site."""
    place = page.file.src_uri
    if place.startswith("decisions/"):
        page.meta["search"] = {"boost": 1e-6}  # below a match in a text, which titles exceed 1,000 times
    source = next((name for name, own in PAGES_OF_ROOT.items() if own == place), join("docs", place))

    def relink(match: re.Match[str]) -> str:
        text, target, anchor = match[2], normpath(join(dirname(source), match[3])), match[4] or ""
        inside = _PLACES.get(target) or (relpath(target, "docs") if target.startswith("docs/") else None)
        if inside is None:
            return text
        if inside == "decisions":
            inside = "decisions/README.md"
        if _FILE_NAME.fullmatch(text) and (found := _TITLE.search((ROOT / target).read_text())):
            text = found[1]
        return f"{match[1]}[{text}]({relpath(inside, dirname(place) or '.')}{anchor})"

    parts = _CODE.split(markdown)
    return "".join(part if number % 2 else _relinked(part, relink) for number, part in enumerate(parts))


def _relinked(text: str, relink) -> str:  # type: ignore[no-untyped-def]
    return _LINK.sub(relink, text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark code that fits a line of a phone: browsers would break it behind each hyphen."""
    return _SHORT_CODE.sub('<code class="short">', html)
