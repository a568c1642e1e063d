"""The views of `cairnmq as-of`: shown, restored to a store, or sent to a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...amqp.client.login import BrokerLogin
from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...base.texts import counted
from ...tools.backup.restore_view import restore_view
from ...tools.history.as_of import QueuesView, difference
from ...tools.load.bulk_sender import OutgoingMessage
from ..common.output import Bars, output, print_fields
from ..common.send_options import send, tell_sent
from .as_of_output import SelectedQueues, show_difference, show_queues


class FoundViews(NamedTuple):
    """The views of the points in time that were requested."""

    views: list[QueuesView]
    queues: SelectedQueues
    output_format: str

    @property
    def status(self) -> int:
        """The exit status."""
        return 0 if all(view.is_complete for view in self.views) else 1

    def show(self, count: int | None) -> None:
        """Show the messages of one view, or the differences between two."""
        if self.output_format == "csv" and count == 0:
            return  # the rows are those of --restore or --resend
        if len(self.views) == 1:
            with output(lambda: self.status):
                show_queues(self.queues, self.views[0], count, output_format=self.output_format)
            return
        first, second = self.views
        if first.lsn > second.lsn:
            raise CairnError("--diff", "the second point in time is before the first", "name the earlier one first")
        with Bars() as bars:
            changes = difference(first, second, self.queues.wanted, bars.show)
        with output(lambda: self.status):
            show_difference(self.queues, first, second, changes, count or 0, output_format=self.output_format)

    def restore(self, target: str) -> None:
        """Make a new store at *target*, and report it."""
        with Bars() as bars:
            restored = restore_view(
                self.queues.past, self.views[0], target, self.queues.wanted, SystemClock(), bars.show
            )
        messages = sum(restored.values())
        with output(lambda: self.status):
            fields = {"store": target, "messages": messages, "queues": restored}
            if not print_fields(fields, self.output_format, "restored"):
                print(f"restored {counted(messages, 'message')} to {target}")

    def resend(self, broker: BrokerLogin, address: str, required: str, rate: float | None, skip: int) -> None:
        """Send the messages to *broker*, and report that. *required*: an address that must exist, if any."""
        messages = self._outgoing(address, rate, skip)
        sent = send(broker, messages, required, "sending")
        with output(lambda: self.status if sent.is_complete else 1):
            tell_sent(sent, lambda token: f"--skip {token} continues there", {}, self.output_format)

    def _outgoing(self, address: str, rate: float | None, skip: int) -> Iterator[OutgoingMessage]:
        """The messages, queue by queue, each in its order; their tokens count them."""
        view = self.views[0]
        on = {queue_id: ids.tolist() for queue_id, ids in view.on.items() if self.queues.wanted(queue_id)}
        messages = ((queue_id, message_id) for queue_id, ids in on.items() for message_id in ids)
        for number, (queue_id, message_id) in enumerate(messages):
            if number < skip:
                continue
            to = address or self.queues.past.queue_names.get(queue_id, "")
            if not to:
                raise CairnError(f"queue {queue_id}", "its name is not known any more", "end the URL with /ADDRESS")
            yield OutgoingMessage(number, to, view.content(message_id), (number - skip) / rate if rate else 0.0)
