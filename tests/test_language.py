"""The pages are written in standard technical English: no pattern of the style guide's left column, short sentences.

`language_exceptions.txt` lists pages that do not meet the rules yet. It may only shrink: a listed page that meets them
fails the test, too. `python -m tests.test_language [PAGE ...]` prints what is wrong.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]
EXCEPTIONS = Path(__file__).with_name("language_exceptions.txt")
_PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [str(page.relative_to(ROOT)) for page in _PAGES if page.parent.name != "decisions"]
"""All pages but the decision records."""
WIDTH = 100
MOST_WORDS = 40
MEDIAN_WORDS = 20
FORBIDDEN = {
    "software does not talk": r"\b(?:is|are|was|were|be|been) told\b|\b(?:tells|says?|hears?|heard|believed)\b",
    "say acquire, dispatch, requeue or reclaim": (
        r"\bhand(?:s|ed|ing)? (?:out|back)\b|\bgiv(?:es?|en|ing) back\b|\blets? go\b|\btakes? back\b"
    ),
    "name the end state": (
        r"\b(?:is|are|was|were) gone\b|\bthere is none\b|\bstands? in\b|\b(?:it|that|which|who|he) is there\b"
    ),
    "name the subject": (
        r"(?:^|[.:;!] )(?:What|Whoever|Whatever|Who)\b(?![^.!?]*\?)|\bwho (?:is|are|has|comes|goes|sends|takes)\b"
    ),
    "say yields": r"\bgives? way\b",
    "use the glossary": r"\bnewcomers?\b|\bbrought up to date\b|\bset aside\b|\bthe house\b|\bnobody's\b",
    "a heading is a noun or an imperative": r"^(?:What|Who|How) [^?]*$",
}
_FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$|<!--.*?-->", re.M | re.S)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)\s]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')*_]* +(?=[A-Z\"'(*_`])")
_ITEM = re.compile(r"^\s*(?:[*+-]|\d+\.) +")


def prose(text: str) -> tuple[list[str], list[str], list[str]]:
    """The headings, the paragraphs and the table cells of a page; code and link targets are left out."""
    text = _LINK.sub(r"\1", _CODE.sub("X", _FENCE.sub("", text)))
    headings: list[str] = []
    paragraphs: list[str] = []
    cells: list[str] = []
    is_open = False
    for line in text.splitlines():
        if line.startswith("#"):
            headings.append(line.lstrip("# "))
        elif line.lstrip().startswith("|"):
            cells += [cell.strip() for cell in line.strip().strip("|").split("|") if cell.strip(" -:")]
        elif line.strip() and is_open and not _ITEM.match(line):
            paragraphs[-1] += f" {line.strip()}"
            continue
        elif line.strip():
            paragraphs.append(_ITEM.sub("", line).strip())
            is_open = True
            continue
        is_open = False
    return headings, paragraphs, cells


def problems(text: str) -> list[str]:
    """Everything in a page that the rules forbid."""
    headings, paragraphs, cells = prose(text)
    sentences = [sentence for paragraph in paragraphs for sentence in _SENTENCE.split(paragraph)]
    lengths = [len(sentence.split()) for sentence in sentences]
    cells = [sentence for cell in cells for sentence in _SENTENCE.split(cell)]
    found = [f"{len(one.split())} words: {one}" for one in (*sentences, *cells) if len(one.split()) > MOST_WORDS]
    if len(lengths) > 5 and median(lengths) >= MEDIAN_WORDS:
        found.append(f"the median sentence has {median(lengths)} words")
    for rule, pattern in FORBIDDEN.items():
        texts = headings if rule.startswith("a heading") else (*headings, *sentences, *cells)
        found += [f"{rule}: {one}" for one in texts if re.search(pattern, one)]
    lines = _FENCE.sub("", text).splitlines()
    found += [
        f"{len(line)} characters: {line}"
        for line in lines
        if len(line) > WIDTH and not line.lstrip().startswith("|") and " " in line[:WIDTH].strip()
    ]
    return found


def exceptions() -> set[str]:
    return {line for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")}


@pytest.mark.parametrize("page", PAGES)
def test_page_is_in_standard_english(page: str) -> None:
    found = problems((ROOT / page).read_text())
    if page in exceptions():
        assert found, f"it meets the rules now: remove it from {EXCEPTIONS.name}"
    else:
        assert found == []


def test_exceptions_are_pages() -> None:
    assert exceptions() - set(PAGES) == set()


@pytest.mark.parametrize(
    "text",
    [
        "The sender is told so.", "A message that is gone.", "Who is silent is closed.", "## What it takes", "x " * 101,
        "A newcomer.", f"{'word ' * 41}.", "| a | The queue hands out messages. |",
    ],
)  # fmt: skip
def test_rules_find_what_they_forbid(text: str) -> None:
    assert problems(text)


def main(names: list[str]) -> None:
    for name in names or [page for page in PAGES if page not in exceptions()]:
        for problem in problems((ROOT / name).read_text()):
            print(f"{name}: {problem[:180]}")


if __name__ == "__main__":
    main(sys.argv[1:])
