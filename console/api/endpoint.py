"""Endpoints as a table: from it follow the routes, the checks of arguments, and the OpenAPI description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from ..session.errors import INVALID, ApiError
from ..session.sessions import BrowserSession

MOST_PER_PAGE = 1000
MOST_TEXT = 4096


class Field(NamedTuple):
    """A parameter of a query, or a key of a body."""

    kind: str
    """string, integer, boolean, object, or array (of strings or integers)."""
    meaning: str
    required: bool = False
    default: Any = None
    least: int = 0
    most: int = 1 << 53
    choices: tuple[str, ...] = ()


class ApiCall(NamedTuple):
    """One request to an endpoint."""

    session: BrowserSession
    path: Mapping[str, str]
    """Decoded segments of the path."""
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path["name"]


class Endpoint(NamedTuple):
    """A method and a path of the API."""

    method: str
    path: str
    summary: str
    handle: Callable[[ApiCall], Awaitable[Any]]
    query: Mapping[str, Field] = {}
    body: Mapping[str, Field] = {}
    status: int = 200
    result: str = "object"
    """The schema of the result: `object`, `list` (a page of items) or `stream`."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the result; None for one that follows from `result`."""
    is_use: bool = True
    """A request extends the session."""
    ends_with_client: bool = False
    """The work is cancelled when the client disconnects; it changes nothing."""

    @property
    def tag(self) -> str:
        return self.path.split("/")[1]


LIST_QUERY = {
    "search": Field("string", "Only items with this text in their name, ignoring case.", default=""),
    "sort": Field("string", "The field to sort by.", default=""),
    "order": Field("string", "The direction of the order.", default="asc", choices=("asc", "desc")),
    "page": Field("integer", "The number of the page.", default=1, least=1),
    "per_page": Field("integer", "Items of a page.", default=50, least=1, most=MOST_PER_PAGE),
    "format": Field("string", "JSON, or a CSV file with up to 10,000 items.", default="json", choices=("json", "csv")),
}


def read_query(fields: Mapping[str, Field], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a query. Raises `ApiError` for unknown and invalid ones."""
    _only(fields, given, "query parameter")
    found: dict[str, Any] = {}
    for name, field in fields.items():
        text = given.get(name)
        value: Any = text
        if text is not None and field.kind == "integer":
            if not text.removeprefix("-").isdecimal() or len(text) > 20:
                raise _invalid(name, f"{text[:80]!r} is not an integer")
            value = int(text)
        elif text is not None and field.kind == "boolean":
            if text not in ("true", "false"):
                raise _invalid(name, "true or false is expected")
            value = text == "true"
        found[name] = checked(name, field, value)
    return found


def read_body(fields: Mapping[str, Field], given: Any) -> dict[str, Any]:
    """Return the values of a body, a decoded JSON value. Raises `ApiError` for unknown and invalid ones."""
    if not isinstance(given, dict):
        raise ApiError(400, INVALID, "the body must be a JSON object")
    _only(fields, given, "key")
    return {name: checked(name, field, given.get(name)) for name, field in fields.items()}


_KINDS: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "any": object,
}  # fmt: skip


def checked(name: str, field: Field, value: Any) -> Any:
    """Return *value*, or the default. Raises `ApiError`."""
    if value is None:
        if field.required:
            raise _invalid(name, "it is required")
        return field.default
    if field.kind == "any" and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise _invalid(name, "a text or an integer is expected")
    if not isinstance(value, _KINDS[field.kind]) or (field.kind == "integer" and isinstance(value, bool)):
        raise _invalid(name, f"a value of type {field.kind} is expected")
    if field.kind == "integer" and not field.least <= value <= field.most:
        raise _invalid(name, f"a number from {field.least} to {field.most} is expected")
    if field.choices and value not in field.choices:
        raise _invalid(name, f"one of {', '.join(field.choices)} is expected")
    if isinstance(value, str) and len(value) > min(field.most, MOST_TEXT) and "body" not in name:
        raise _invalid(name, f"it has more than {min(field.most, MOST_TEXT)} characters")
    return value


def _only(fields: Mapping[str, Field], given: Mapping[str, Any], what: str) -> None:
    for name in given:
        if name not in fields:
            raise ApiError(400, INVALID, f"unknown {what} {str(name)[:80]!r} (known: {', '.join(fields) or 'none'})")


def _invalid(name: str, text: str) -> ApiError:
    return ApiError(400, INVALID, f"{name}: {text}", field=name)
