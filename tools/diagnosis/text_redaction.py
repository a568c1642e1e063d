"""Removal of secrets from text: logs, configuration and values of variables.

| found | replaced |
|---|---|
| a known secret, such as the content of a password file | all of it |
| `scheme://user:password@host` | user and password |
| `Bearer`, `Basic` and SASL responses | the credentials |
| a key such as `password`, `token` or `secret` before `=` or `:` | the value, unquoted up to the end of the line |
| a private key in PEM, also without its end | the key |
| a JSON Web Token, and other long words in base64 or hexadecimal digits | the word |

The rules remove too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[redacted]"
LEAST_SECRET = 4
"""Known secrets with fewer characters are not replaced, as they would appear in other words."""
_KEY = (
    r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|private[_-]?key|access[_-]?key|pwd"
    r"|authorization|signature|cookie|stored_key|server_key|salted)[\w.-]*"
)
_RULES = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S), HIDDEN),
    (re.compile(r"(\b[A-Za-z][\w+.-]*://)[^\s\"'<>]*@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(?i)\b(bearer|basic|plain)\s+[\w+/=.~-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(rf"(?i)({_KEY}\\?[\"']?\s*[:=]\s*)\\?\"(?:\\.|[^\"\\])*\\?\""), rf'\1"{HIDDEN}"'),
    (re.compile(rf"(?i)({_KEY}[\"']?\s*[:=]\s*)(?![\"\s]*{re.escape(HIDDEN)})[^\"\s].*"), rf"\1{HIDDEN}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]*\.?[\w-]*"), HIDDEN),
    (re.compile(r"\b[0-9a-fA-F]{32,}\b"), HIDDEN),
    (re.compile(r"(?<![\w/+])(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])[A-Za-z0-9+/_-]{40,}={0,2}"), HIDDEN),
)


class TextRedaction:
    """Removes secrets from text."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """*known*: secrets to replace wherever they are."""
        self._known = sorted({one for one in known if len(one) >= LEAST_SECRET}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
        return text
