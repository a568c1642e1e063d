"""The OpenAPI 3.1 description of the API, derived from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ... import __version__
from .endpoint import Endpoint, Field

PREFIX = "/api/v1"
ERRORS = {
    400: "The request is invalid.",
    401: "There is no session, or it has expired.",
    403: "The access rules of the broker deny it, or the CSRF token is missing.",
    404: "There is no such entity.",
    409: "The state of the entity does not allow it.",
    429: "Too many requests.",
    501: "The broker or the console does not provide it.",
    503: "The broker cannot be reached, or the console is busy.",
    507: "The result, or the memory of a reader of history, exceeds its limit.",
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "condition": {"type": "string"},
                "text": {"type": "string"},
                "field": {"type": "string", "description": "The parameter, or the key of the body, that is invalid."},
            },
            "required": ["condition", "text"],
        }
    },
    "required": ["error"],
}
_LIST = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "object"}},
        "total": {"type": "integer"},
        "page": {"type": "integer"},
        "per_page": {"type": "integer"},
    },
    "required": ["items", "total", "page", "per_page"],
}
SESSION_RESULT = {
    "type": "object",
    "properties": {
        "user": {"type": ["string", "null"]},
        "csrf": {"type": "string", "description": "The value of X-CSRF-Token for requests that change something."},
        "broker": {"type": "object"},
        "has_history": {"type": "boolean"},
        "idle_s": {"type": "number", "description": "A session ends when it is idle for so many seconds."},
    },
    "required": ["csrf"],
}


def description(endpoints: Iterable[Endpoint], login: Mapping[str, Field]) -> dict[str, Any]:
    """Return the description as a JSON object."""
    paths: dict[str, dict[str, Any]] = {"/session": _session(login)}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "CairnMQ HTTP API", "version": __version__, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": PREFIX}],
        "security": [{"session": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, "List": _LIST, "Session": SESSION_RESULT},
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "cairnmq-session"},
            },
            "parameters": {
                "csrf": {
                    "name": "X-CSRF-Token", "in": "header", "required": True, "schema": {"type": "string"},
                    "description": "The `csrf` of the session.",
                },
            },
        },
    }  # fmt: skip


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]
    parameters += [
        {
            "name": name, "in": "query", "required": field.required, "description": field.meaning,
            "schema": schema_of(field),
        }
        for name, field in endpoint.query.items()
    ]  # fmt: skip
    if endpoint.method != "GET":
        parameters.append({"$ref": "#/components/parameters/csrf"})
    words = re.sub(r"[{}]", "", endpoint.path).replace("/", " ").replace("_", " ").split()
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": "_".join([endpoint.method.lower(), *words]),
        "tags": [endpoint.tag],
        "responses": {str(endpoint.status): _success(endpoint), **_errors()},
    }
    if parameters:
        found["parameters"] = parameters
    if endpoint.body:
        found["requestBody"] = body_of(endpoint.body)
    return found


def body_of(fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return the description of a body."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {**schema_of(field), "description": field.meaning} for name, field in fields.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if field.required]
    if required:
        schema["required"] = required
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def schema_of(field: Field) -> dict[str, Any]:
    """Return the JSON schema of a field."""
    if field.kind == "any":
        return {"type": ["string", "integer"]}
    found: dict[str, Any] = {"type": field.kind}
    if field.kind == "integer":
        found |= {"minimum": field.least, "maximum": field.most}
    if field.kind == "array":
        found["items"] = {"type": "integer"}
    if field.choices:
        found["enum"] = list(field.choices)
    if field.default is not None:
        found["default"] = field.default
    return found


def _success(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.status == 204:
        return {"description": "Done."}
    if endpoint.result == "stream":
        return {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    schema: dict[str, Any] = {"type": "object"}
    if endpoint.result == "list":
        schema = {"$ref": "#/components/schemas/List"}
    if endpoint.schema is not None:
        schema = dict(endpoint.schema)
    return {"description": endpoint.summary + ".", "content": {"application/json": {"schema": schema}}}


def _errors() -> dict[str, Any]:
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": text, "content": schema} for status, text in ERRORS.items()}


def _session(login: Mapping[str, Field]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Session"}}}
    csrf = {"$ref": "#/components/parameters/csrf"}
    optional: dict[str, Any] = {
        "name": "optional", "in": "query", "schema": {"type": "boolean", "default": False},
        "description": "Answer 204 without a session, not 401.",
    }  # fmt: skip
    return {
        "post": {
            "summary": "Log in", "operationId": "log_in", "tags": ["session"], "security": [],
            "requestBody": body_of(login),
            "responses": {"201": {"description": "The session, and a cookie.", "content": content}, **_errors()},
        },
        "get": {
            "summary": "Show the session", "operationId": "get_session", "tags": ["session"],
            "parameters": [optional],
            "responses": {
                "200": {"description": "The session.", "content": content}, "204": {"description": "No session."},
                **_errors(),
            },
        },
        "delete": {
            "summary": "Log out", "operationId": "log_out", "tags": ["session"], "parameters": [csrf],
            "responses": {"204": {"description": "Done."}, **_errors()},
        },
    }  # fmt: skip
