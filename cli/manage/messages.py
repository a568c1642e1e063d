"""`cairnmq send` and `cairnmq receive`: messages from and for the shell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ...base.errors import IncompleteResult, InvalidOption, unreadable
from ...base.texts import counted
from ..common.login_options import login_of
from ..common.output import answering, print_fields, print_line, printable, remark
from ..common.units import Milliseconds
from ..options.subjects import INPUT, OUTPUT, SELECTION, GroupedCommand, option, several
from .ctl import argument_of, connection_options

if TYPE_CHECKING:
    from ...tools.load.message_receiver import MessageReceiver

MESSAGE = "Message"
_MOST_LINE_BYTES = 16 << 20
message_options = several(
    option(MESSAGE, "-p", "--property", "properties", multiple=True, metavar="KEY=VALUE",
           help="Application property: a number, true or false where it looks like one. Repeatable."),
    option(MESSAGE, "--annotation", "annotations", multiple=True, metavar="KEY=VALUE",
           help="Message annotation, such as x-opt-delivery-delay=5000. Repeatable."),
    option(MESSAGE, "--id", "message_id", metavar="TEXT", help="Message ID."),
    option(MESSAGE, "--subject", metavar="TEXT", help="Subject; an exchange uses it as the routing key."),
    option(MESSAGE, "--reply-to", metavar="ADDRESS", help="Address for replies."),
    option(MESSAGE, "--correlation-id", metavar="TEXT", help="ID of the message that this one replies to."),
    option(MESSAGE, "--content-type", metavar="TYPE", help="Content type, such as application/json."),
    option(MESSAGE, "--group", "group_id", metavar="TEXT", help="Group ID."),
    option(MESSAGE, "--priority", type=click.IntRange(0, 255), metavar="N", help="Priority.  [default: 4]"),
    option(MESSAGE, "--ttl", "ttl_ms", type=Milliseconds(1), help="Time to live."),
    option(MESSAGE, "--transient", is_flag=True, help="Don't store the message on the disk."),
)  # fmt: skip


@click.command("send", cls=GroupedCommand, short_help="Send messages")
@click.argument("address")
@click.argument("body", required=False)
@option(INPUT, "--file", "path", type=click.Path(dir_okay=False), metavar="FILE",
        help="Send the content of a file; `-`: of standard input.")
@option(INPUT, "--lines", is_flag=True, help="Send each line of the input as a message.")
@option(INPUT, "--count", type=click.IntRange(1, 10**12), default=1, show_default=True, metavar="N",
        help="Send the message N times.")
@message_options
@connection_options
@answering
def send(
    address: str, body: str | None, path: str | None, lines: bool, count: int, url: str, user: str | None,
    ca: str | None, timeout_s: float, output_format: str, **message: Any,
) -> int:  # fmt: skip
    """Send messages to ADDRESS: a queue, or an exchange and a key such as `amq.topic/orders.eu`.

    BODY is sent as text. The content of a file or of standard input, which is read if there is no BODY, is sent as
    bytes. The command ends when the broker has confirmed the messages: durable ones are on the disk.

    The exit status is 0 if all messages were accepted, 1 if not, and 2 if the command is wrong or the broker can't be
    reached.

    \b
    Examples:
      cairnmq send orders 'one cairn, please' -p region=eu
      cairnmq send orders --file order.json --content-type application/json
      cairnmq send orders --lines --file orders.txt
    """
    if body is not None and (path is not None or lines):
        raise click.UsageError("give BODY, or an input with --file and --lines, not both")
    if lines and count > 1:
        raise click.UsageError("give --lines or --count, not both")
    head = _head(message)
    source = _bodies(body, path, lines, count)
    sent = _sent(login_of(url, user, ca, timeout_s), address, head, source)
    if not print_fields(sent, output_format):
        print(f"sent {counted(sent['accepted'], 'message')} to {printable(address)}")
    return 0


def _sent(broker: Any, address: str, head: bytes, bodies: Iterable[bytes]) -> dict[str, int]:
    """Send the messages, and return the figures. Raises `IncompleteResult` for a message that was not accepted."""
    from ...tools.load.bulk_sender import OutgoingMessage
    from ..common.send_options import send as send_all

    outgoing = (OutgoingMessage(number, address, head + body) for number, body in enumerate(bodies, 1))
    result = send_all(broker, outgoing, "", "sending")
    if result.failure:
        if not result.outcomes and result.next_token is None:
            raise InvalidOption(address, result.failure)
        reason = f"{result.failure}; accepted: {counted(result.accepted, 'message')}"
        raise IncompleteResult(f"send to {address}", reason)
    if not result.is_complete:
        token, reason = result.refused[0]
        place = f"send to {address}" if result.outcomes.total() == 1 else f"send to {address}: message {token}"
        raise IncompleteResult(place, reason, f"accepted: {counted(result.accepted, 'message')}")
    return {"accepted": result.accepted, "bytes": result.sent_bytes}


def _head(given: dict[str, Any]) -> bytes:
    """Return the encoded sections before the body."""
    from ...amqp.codec import sections
    from ...amqp.codec.header import Header

    priority, annotations = given["priority"], dict(map(argument_of("--annotation"), given["annotations"]))
    ttl_ms = None if given["ttl_ms"] is None else int(given["ttl_ms"])
    header = Header(not given["transient"], 4 if priority is None else priority, ttl_ms)
    properties = sections.Properties(
        message_id=given["message_id"], subject=given["subject"], reply_to=given["reply_to"],
        correlation_id=given["correlation_id"], content_type=given["content_type"], group_id=given["group_id"],
    )  # fmt: skip
    found = sections.header_section(header)
    if annotations:
        found = sections.annotated(found, annotations)
    if properties != sections.NO_PROPERTIES:
        found += sections.properties_section(properties)
    if given["properties"]:
        entries = dict(map(argument_of("--property"), given["properties"]))
        found += sections.application_properties_section(entries)
    return found


def _bodies(body: str | None, path: str | None, lines: bool, count: int) -> Iterator[bytes]:
    """Return the encoded bodies. Raises `InvalidOption` for an input that can't be read."""
    from ...amqp.codec import encode
    from ...amqp.codec.sections import DATA, VALUE

    if body is not None:
        return repeat(encode.described(VALUE, encode.string(body)), count)
    stream = _opened(path)
    if lines:
        return (encode.described(DATA, encode.binary(line)) for line in _lines(stream, path or "-"))
    try:
        with stream:
            content = stream.read()
    except OSError as error:
        raise unreadable(path or "standard input", error, "name a file with --file") from error
    return repeat(encode.described(DATA, encode.binary(content)), count)


def _opened(path: str | None) -> BinaryIO:
    if path is None and sys.stdin.isatty():
        raise click.UsageError("Missing argument 'BODY': give a text, --file FILE, or standard input.")
    if path in (None, "-"):
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except OSError as error:
        raise unreadable(path, error, "name a file with --file") from error


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    with stream:
        while line := stream.readline(_MOST_LINE_BYTES + 1):
            if len(line) > _MOST_LINE_BYTES:
                raise InvalidOption(f"--lines of {name}", f"a line has more than {_MOST_LINE_BYTES} bytes")
            yield line.rstrip(b"\r\n")


@click.command("receive", cls=GroupedCommand, short_help="Receive messages")
@click.argument("address")
@option(SELECTION, "--count", type=click.IntRange(1), metavar="N", help="Receive at most N messages.  [default: all]")
@option(SELECTION, "--follow", is_flag=True, help="Wait for more messages, until --count or Ctrl-C.")
@connection_options
@option(OUTPUT, "--bytes", "raw", is_flag=True, help="Write the bytes of the bodies, without line ends.")
@answering
def receive(
    address: str, count: int | None, follow: bool, url: str, user: str | None, ca: str | None, timeout_s: float,
    output_format: str, raw: bool,
) -> int:  # fmt: skip
    """Receive messages from the queue ADDRESS, and print their bodies.

    A message is removed from the queue after it was printed. `cairnmq ctl queues peek` shows messages without removing
    them. JSON is an object per message, with its properties. The command ends when the queue has no more messages; with
    --follow it waits for others.

    The exit status is 0 if messages were received, 1 if there were none, and 2 if the command is wrong or the broker
    can't be reached.

    \b
    Examples:
      cairnmq receive orders --count 1
      cairnmq receive orders --follow --json
    """
    if output_format == "json" and raw:
        raise click.UsageError("give --json or --bytes, not both")
    if output_format == "csv":
        raise click.UsageError("--output csv: messages are printed as text or JSON; give --json")
    from ...tools.load.message_receiver import MessageReceiver

    show = _show_raw if raw else _show_json if output_format == "json" else _show_body
    with closing(MessageReceiver(login_of(url, user, ca, timeout_s), address)) as receiver:
        received = _shown(receiver, count, show, waits=follow)
    if not received:
        remark("receive", f"no messages on {address}")
    return 0 if received else 1


def _shown(receiver: MessageReceiver, count: int | None, show: Callable[[bytes], None], *, waits: bool) -> int:
    """Print messages, and return their number. Each is accepted after it was written."""
    received = 0
    for message in receiver.messages(count, waits=waits):
        show(message.content)
        sys.stdout.flush()
        received += 1
    return received


def _show_raw(content: bytes) -> None:
    body = _body_of(content)
    data = body if isinstance(body, bytes) else str(body).encode() if isinstance(body, str) else None
    if data is None:
        raise InvalidOption("--bytes", "a message is neither bytes nor text", "use --json; it was not removed")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _show_body(content: bytes) -> None:
    from ...amqp.client.plain_values import plain

    body = plain(_body_of(content))
    sys.stdout.write(f"{printable(body) if isinstance(body, str) else body}\n")


def _show_json(content: bytes) -> None:
    from ...tools.load.message_fields import message_fields

    print_line(message_fields(content))


def _body_of(content: bytes) -> Any:
    from ...tools.load.message_fields import body_of

    return body_of(content)
