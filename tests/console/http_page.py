"""Generator of the endpoint table in docs/reference/http-api.md. `python -m tests.console.http_page` writes it."""

from __future__ import annotations

from pathlib import Path

from cairnmq.console.api.openapi import description
from cairnmq.console.app import LOGIN, Console
from cairnmq.console.session.options import ConsoleOptions

PAGE = Path(__file__).parents[2] / "docs/reference/http-api.md"
BEGIN, END = "<!-- endpoints: python -m tests.console.http_page -->\n", "<!-- end -->"


def table() -> str:
    """Return the rows of all endpoints."""
    found = description(Console(ConsoleOptions()).endpoints, LOGIN)
    rows = ["| method | path | purpose | parameters |", "|---|---|---|---|"]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            names = [one["name"] for one in operation.get("parameters", ()) if one.get("in") == "query"]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            names += list(body.get("properties", ()))
            shown = ", ".join(f"`{name}`" for name in names)
            rows.append(f"| {method.upper()} | `{path}` | {operation['summary']} | {shown} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return the page with the current table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
