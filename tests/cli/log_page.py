"""The reference page of the log, made of the tables of events. `python -m tests.cli.log_page` writes it."""

from __future__ import annotations

from pathlib import Path

from cairnmq.base.accounts import audit
from cairnmq.cli.run.announcements import EVENTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "logs.md"
AUDIT = {
    audit.LOGIN: "A client has logged in. `DEBUG`, or `INFO` with `--audit-logins`.",
    audit.LOGIN_FAILED: "A login failed: `user`, `mechanism`, `reason`, `why`.",
    audit.CHANGE: "A change by management: `user`, `container`, `operation`, `type`, `name`, `outcome`.",
    audit.CHANGE_REFUSED: "A change by management that was not carried out, and why.",
    audit.SUPPRESSED: "Records of an event that were suppressed because there were too many: `of`, `count`.",
}
"""The names of audit events."""
BEGIN = """\
# Logs

`--log-level` (`debug`, `info`, `warning`, `error`), `--log-format` (`text`, `json`, `logfmt`) and
`--log-file` are options of `cairnmq broker`. Every record is one line; the lines of a traceback
are indented.

| Format | Line |
|---|---|
| `text` | `2026-11-24T13:04:42.123Z INFO broker.listening listening on 127.0.0.1:5672` |
| `logfmt` | `time=2026-11-24T13:04:42.123+00:00 level=info event=broker.listening logger=... message="..."` |
| `json` | an object with the same fields |

Times are UTC. Each record has `time`, `level`, `event`, `logger` and `message`, and the fields of
its event. If it concerns a connection, a link or a queue, it also has `connection`, `link` or
`queue`. `error` contains the traceback of an internal error.

In the formats `text` and `logfmt`, lifecycle events are on standard output, and all other records
on standard error. With `--log-format json` all records are on standard error. With `--log-file` all
records are in the file. If the file is renamed, the broker opens a new one (logrotate needs no
signal). The file of `--audit-file` receives audit records in addition.

The names below are stable. A record without an event of its own has the name of the layer that
logs it: `router`, `broker`, `store`, `journal`, `cluster`, `amqp`.
"""


def page() -> str:
    """The whole page."""
    lines = [BEGIN]
    for title, events in (("Lifecycle and recovery", EVENTS), ("Audit", AUDIT)):
        lines += [f"## {title}", "", "| Event | Meaning |", "|---|---|"]
        lines += [f"| `{event}` | {meaning} |" for event, meaning in events.items()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
