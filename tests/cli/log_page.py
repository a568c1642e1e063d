"""Generator of the log reference from the tables of events. `python -m tests.cli.log_page` writes the page."""

from __future__ import annotations

from pathlib import Path

from cairnmq.base.accounts import audit

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "logs.md"
LIFECYCLE = {
    "broker.listening": "The broker listens, at this address.",
    "broker.listening-tls": "The broker listens with TLS, at this address.",
    "broker.storing": "The data directory, or a note that messages are only in memory.",
    "broker.wiring": "The server of the wiring.",
    "broker.metrics": "The URL of the metrics.",
    "broker.console": "The URL of the web console.",
    "broker.cluster": "The name of the cluster.",
    "broker.archiving": "The directory of the archive.",
    "broker.sidecars": "The directory of the column index.",
    "broker.exporting": "The target of the export.",
    "broker.config": "The configuration file.",
    "broker.unknown-variable": "A variable `CAIRNMQ_*` in the environment that is not an option. It is ignored.",
    "broker.recovering": "Progress of a recovery that takes more than two seconds.",
    "broker.recovered": "A result of recovery: messages, queues, repaired tail. Clients are admitted.",
    "broker.store-created": "The data directory had no store. `--require-store` prevents its creation.",
    "broker.reloaded": "A reload was applied.",
    "broker.restart-needed": "A reload found changed options that are used from the next start on.",
    "broker.reload-failed": "A reload failed; nothing has changed.",
    "broker.helper-waiting": "The process of the column index or the export failed, and tries again.",
    "broker.helper-ended": "The process of the column index or the export has ended. The broker continues without it.",
    "broker.console-ended": "The web console has ended, and is started again.",
    "dev.no-samples": "`cairnmq dev` could not create its exchange and queues.",
    "console.reload-failed": "A changed certificate of the web console is unusable; the previous one stays in use.",
    "broker.traces-failed": "Spans cannot be exported, and are dropped.",
    "broker.traces-resumed": "Spans are exported again.",
    "metrics.failed": "A request for metrics failed.",
    "metrics.open": "`--metrics-listen` is no loopback address, and no token is set.",
    "metrics.refused": "A client of another protocol connected to `--metrics-port`.",
    "systemd.unreachable": "The service manager receives no status of the broker.",
    "broker.stopping": "SIGTERM or SIGINT arrived.",
    "broker.stopped": "The broker has stopped in order.",
    "broker.internal-error": "A defect of the broker. The record has a traceback.",
    "broker.failed": "The broker could not start, or has failed.",
}
STORE = {
    "disk.low": "Little space is left on the disk; durable messages are rejected.",
    "disk.full": "The disk is full; no journal container can be created.",
    "disk.has-room": "The disk has space again; durable messages are accepted.",
    "disk.failed": "A journal container could not be created in advance.",
    "disk.hold-broken": "The disk is full: backups and commands that read the log lose it, or their lock file remains.",
    "archive.gap": "Containers were reclaimed before they were archived: history is missing.",
    "bookmark.late": "The reader of a bookmark is so late that the bookmark may be dropped.",
    "bookmark.dropped": "A bookmark was dropped; its reader may miss history.",
    "bookmark.failed": "A bookmark could not be stored or removed.",
    "bookmark.recreated": "The bookmark of a reader was removed, and is created again.",
    "checkpoint.failed": "No checkpoint could be written; a restart reads more of the log.",
    "compaction.failed": "A container could not be read for compaction; its space is not reclaimed.",
    "wiring.invalid-row": "A row of the wiring, or an argument in it, is invalid, and is ignored.",
    "wiring.failed": "The server of the wiring failed, or refused a change.",
    "sidecar.skipped": "A container was reclaimed before its column index was made.",
    "history.truncated": "A query reads a range whose beginning was reclaimed.",
    "message.unreadable": "A message or its record cannot be read; it remains in the store.",
    "message.malformed": "A stored content is no AMQP message: it remains in the store, and is not delivered.",
    "message.not-annotated": "A message is requeued without annotations of its receiver, and why.",
    "message.count-failed": "The count of failed deliveries cannot be stored, and is in memory only.",
}
CLUSTER = {
    "cluster.transfer-started": "A state transfer has started: messages, and the node or the queues.",
    "cluster.transfer-progress": "Progress of a state transfer.",
    "cluster.transfer-completed": "This member has received all messages of the state transfer.",
    "cluster.synchronized": "This member has all messages, and serves clients.",
    "cluster.not-serving": "This member has not served clients for long, and why.",
    "cluster.disconnected": "This member has left the group or its majority; clients are disconnected.",
    "cluster.failed": "This member has left the cluster permanently, and why.",
    "cluster.undecided": "The members belong to different clusters; an operator must decide.",
    "cluster.member-joined": "A node has joined the group: `node`.",
    "cluster.member-left": "A node has left the group: `node`, `reason`.",
    "cluster.member-silent": "A member does not respond.",
    "cluster.member-answers": "A silent member responds again.",
    "cluster.member-expelled": "A silent member was expelled.",
    "cluster.member-refused": "A node was refused as a member, and why.",
    "cluster.late": "Events wait for a majority for long.",
    "cluster.in-time": "Events are acknowledged by a majority in time again.",
    "cluster.clock-skew": "The clock of a node differs from that of this broker.",
    "cluster.event-ignored": "An event of another member is invalid, and was ignored.",
    "cluster.corosync-silent": "corosync does not respond.",
    "cluster.corosync-up": "corosync responds again.",
    "cluster.divergent-state": "Messages that only this member has were backed up, at this path.",
    "cluster.divergent-state-dropped": "The disk is full: former messages of this member are dropped without a backup.",
    "cluster.divergent-state-removed": "An old backup of divergent state was removed.",
    "cluster.backup-failed": "A backup of divergent state could not be made or removed.",
}
OTHERS = {
    "connector.up": "A connector has opened its connection.",
    "connector.down": "A connector has no connection, and why. It tries again.",
    "connector.failed": "A stored connector cannot be used, for example because a file is missing.",
    "auto-link.up": "An auto-link is attached.",
    "auto-link.down": "An auto-link is detached, and why.",
    "neighbor.up": "A broker of the network of brokers is connected.",
    "neighbor.down": "A broker of the network of brokers is not connected, and why.",
    "neighbor.refused": "The broker at the other end of a connector cannot be a neighbor, and why.",
    "federation.up": "A federated queue receives from its upstream.",
    "federation.down": "A federated queue does not receive from its upstream, and why.",
    "federation.failed": "A federated queue cannot be recovered.",
    "federation.promoted": "A federated queue was promoted to a queue of this site.",
    "federation.downstream-up": "Another site has started to copy a queue.",
    "federation.downstream-down": "A queue is no longer copied to another site, and why.",
}
CLIENTS = {
    "connection.refused": "An address opens too many connections in a second.",
    "connection.failed": "A connection could not be accepted, for example for lack of file descriptors.",
    "connection.few-files": "The limit of open files allows fewer connections than `--max-connections`.",
    "session.ended": "A session was ended because of an error of its client. `DEBUG` after the first one.",
    "connection.ended": "A connection has ended, and why. `DEBUG` if a client aborts it.",
    "consumer.silent": "A consumer sent no heartbeats, so its connection was closed and its messages return to the "
    "queue. See [long tasks](../how-to/long-tasks.md).",
    "link.selector-failed": "A selector exceeds its budget for a message; the link is closed.",
    "link.tag-not-stored": "A delivery of a resumable link waits, as its tag cannot be stored.",
    "link.tag-unreadable": "A delivery tag of a resumable link cannot be read.",
    "transaction.rolled-back": "A distributed transaction is rolled back before its coordinator prepares it.",
    "dead-letter.delayed": "A message cannot be moved from its queue now, and is tried again.",
    "dead-letter.dropped": "A message is dropped, because it cannot be moved to another queue.",
    "management.failed": "A defect of management. The client receives an internal error.",
    "management.response-dropped": "There is no memory for the response to a management request.",
    "tls.certificate-invalid": "A certificate of the broker or a connector has expired, or is not valid yet.",
    "users.reloaded": "A changed users file was read.",
    "users.reload-failed": "A changed users file is invalid; its users cannot log in.",
    "login.trust-failed": "The file of logins that succeeded before can't be written.",
    "console.login-failed": "A login at the web console failed.",
    "console.replayed": "A user of the web console sent messages of the history again.",
}
AUDIT = {
    audit.LOGIN: "A client has logged in. `DEBUG`, or `INFO` with `--audit-logins`.",
    audit.LOGIN_FAILED: "A login failed: `user`, `mechanism`, `reason`, `detail`.",
    audit.CHANGE: "A change by management: `user`, `container`, `operation`, `type`, `name`, `outcome`.",
    audit.CHANGE_REFUSED: "A change by management that was not carried out, and why.",
    "audit.failed": "The audit file cannot be written.",
    audit.SUPPRESSED: "Records of an event that were suppressed because there were too many: `of`, `count`, `users`.",
}
SECTIONS = {
    "Lifecycle and recovery": LIFECYCLE,
    "Disk, journal and history": STORE,
    "Cluster": CLUSTER,
    "Other brokers": OTHERS,
    "Connections, links and management": CLIENTS,
    "Audit": AUDIT,
}
"""The names of events by section of the page."""
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

The names below are stable. Each record of the level `WARNING` or above has one of them. A record of
`INFO` or `DEBUG` without an event of its own has the name of the layer that logs it: `router`,
`broker`, `store`, `journal`, `cluster`, `amqp`.
"""


def page() -> str:
    """Return the complete page."""
    lines = [BEGIN]
    for title, events in SECTIONS.items():
        lines += [f"## {title}", "", "| Event | Meaning |", "|---|---|"]
        lines += [f"| `{event}` | {meaning} |" for event, meaning in events.items()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
