"""The options of the target broker, and the report of a sending; for `as-of --resend` and `replay`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from urllib.parse import unquote

from ...amqp.client.login import BrokerLogin
from ...base.errors import IncompleteResult
from ...base.texts import counted
from ...tools.load.bulk_sender import BulkSender, OutgoingMessage, SendResult
from ..options.common_options import ca_option, user_option
from ..options.subjects import TARGET, option, several
from .login_options import checked_url
from .output import Bars, long_line_console, print_fields, printable
from .signals import ENDING, replaced

target_options = several(
    option(
        TARGET, "--create", "may_create", is_flag=True,
        help="Let the broker create the queue at the end of the URL, if its --auto-create permits.",
    ),
    user_option,
    ca_option,
)  # fmt: skip


def address_of(url: str) -> str:
    """Return the address at the end of *url*, empty for none. Raises `click.UsageError`."""
    return unquote(checked_url(url).path.removeprefix("/"))


def send(broker: BrokerLogin, messages: Iterator[OutgoingMessage], required: str, title: str) -> SendResult:
    """Send messages as `BulkSender` does, and show the progress under *title*.

    Ctrl-C and SIGTERM stop it in order; the second signal ends it immediately.
    """

    def stop(before: Any, number: int, frame: FrameType | None) -> None:
        sending.interrupt()
        signal.signal(number, before)

    with Bars() as bars:
        sending = BulkSender(broker, messages, lambda done: bars.show(title, done, 0), required)
        with replaced(ENDING, stop, lambda before: True):
            return sending.run()


def tell_sent(
    sent: SendResult, how_to_go_on: Callable[[int], str], more: dict[str, object], output_format: str
) -> None:
    """Shows the outcomes of a sending. Raises `IncompleteResult` if it is not complete."""
    go_on = "" if sent.next_token is None else how_to_go_on(sent.next_token)
    rate = sent.outcomes.total() / sent.seconds if sent.seconds else 0.0
    percentiles = {f"p{share:g}": round(sent.percentile_ms(share / 100), 3) for share in (50, 90, 99, 99.9, 100)}
    fields = {
        "accepted": sent.accepted, "outcomes": dict(sent.outcomes), "bytes": sent.sent_bytes,
        "seconds": round(sent.seconds, 3), "per_second": round(rate, 1), "latency_ms": percentiles,
        "late_seconds": round(sent.late_s, 3), "complete": sent.is_complete, "failure": sent.failure or None,
        "next": sent.next_token, "refused": [{"at": at, "reason": reason} for at, reason in sent.refused], **more,
    }  # fmt: skip
    if not print_fields(fields, output_format, "sent"):
        out = long_line_console()
        for outcome, count in sorted(sent.outcomes.items()):
            out.print(f"{outcome}: {count}")
        out.print(f"{counted(sent.sent_bytes, 'byte')} in {sent.seconds:.2f} s, {rate:.0f} messages/s")
        if sent.latencies_s:
            shares = ", ".join(f"{name} {value:.2f}" for name, value in percentiles.items())
            out.print(f"confirmed after, in ms: {shares}")
        if sent.late_s >= 0.1:
            out.print(f"at most {sent.late_s:.1f} s behind the times that were asked for")
        for at, reason in sent.refused:
            out.print(f"{at}: {printable(reason)}")
    if sent.failure:
        raise IncompleteResult("sending", f"{sent.failure}; accepted: {counted(sent.accepted, 'message')}", go_on)
    if not sent.is_complete:
        raise IncompleteResult("sending", "not all messages were accepted", "see the reasons in the result")
