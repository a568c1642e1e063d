"""`cairnmq perftest`: load any AMQP 1.0 broker and measure it; or kill it again and again, and see what it keeps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from ...amqp.client.login import BrokerLogin
from ...base.errors import CairnError
from ...base.texts import counted
from ...tools.perftest.plan import MODES, SHARED, Addresses, Options, checked
from ...tools.perftest.run import Roles, TestRun
from ...tools.perftest.setup import set_up
from ..common.login_options import login_of, password_of
from ..common.signals import status_of, terminable
from ..common.units import SIZE, Duration, Finite, Milliseconds
from ..options.common_options import ca_option, output_options, url_option, user_option
from ..options.subjects import CONNECTION, OUTPUT, GroupedCommand, option, several
from .perftest_screen import Screen, check_writable, write_out
from .soak import DEFAULTS, SoakOptions, soak, soak_options

Command = Callable[..., Any]
YES_NO = ("yes", "no")
ROLES, LOAD, PUBLISHERS, SUBSCRIBERS = "Roles", "Load", "Publishers", "Subscribers"
QUEUES, TRANSACTIONS = "Queues", "Transactions"
_MOST_MESSAGES = 1_000_000_000
"""The maximum number of messages of a publisher, which keeps some bytes for each. AMQP allows four times as many."""
_MOST_CLIENTS = 10_000
_MOST_IN_QUEUE = 1 << 62


def _flag(subject: str, *names: str, default: bool, text: str) -> Callable[[Command], Command]:
    return option(
        subject, *names, default=YES_NO[0 if default else 1], show_default=True, type=click.Choice(YES_NO), help=text,
        callback=lambda context, param, said: said == YES_NO[0],
    )  # fmt: skip


def _number(
    subject: str, *names: str, default: int, least: int = 0, most: int = _MOST_MESSAGES, text: str
) -> Callable[[Command], Command]:
    kind = click.IntRange(least, most)
    return option(subject, *names, default=default, show_default=True, type=kind, metavar="N", help=text)


perftest_options = several(
    url_option,
    user_option,
    ca_option,
    option(CONNECTION, "--timeout", "timeout_s", default="10s", show_default=True, type=Duration(0.1),
           help="Deadline of each request to the broker."),
    option(ROLES, "--setup", is_flag=True, help="Create the queues, and purge them."),
    option(ROLES, "--control", is_flag=True, help="Wait for the clients, start them, and report."),
    option(ROLES, "--publish", is_flag=True, help="Publish: one publisher for each queue or topic."),
    option(ROLES, "--subscribe", is_flag=True, help="Subscribe: one subscriber for each queue or topic."),
    option(LOAD, "--mode", default=SHARED, show_default=True, type=click.Choice(MODES),
           help="shared: --qt queues, --npubs and --nsubs on each; topic: as shared, with topics; "
                "fanout: all subscribers get all messages."),
    _number(PUBLISHERS, "--npubs", default=1, most=_MOST_CLIENTS, text="Publishers (of each queue or topic)."),
    _number(LOAD, "--count", default=500_000, least=1, text="Messages of each publisher."),
    option(LOAD, "--size", default="1024", show_default=True, type=SIZE, metavar="BYTES", help="Size of a body."),
    _number(LOAD, "--headers", default=0, most=10_000, text="Application properties of each message."),
    _flag(PUBLISHERS, "--pub-confirms", "--pub-confirm", "confirms", default=True, text="Messages are sent unsettled."),
    _flag(LOAD, "--durable", default=False, text="Messages are durable, and queues."),
    _flag(LOAD, "--unique-data", default=False, text="Each message has different bytes."),
    _flag(PUBLISHERS, "--sync-publish", default=False, text="Each message waits for the outcome of the one before."),
    _number(PUBLISHERS, "--window", default=1000, least=1, text="Unconfirmed messages of a publisher."),
    _number(SUBSCRIBERS, "--nsubs", default=1, most=_MOST_CLIENTS, text="Subscribers (of each queue or topic)."),
    _number(SUBSCRIBERS, "--sub-ack", default=100, text="Messages per acceptance; 0: messages are sent settled."),
    _number(SUBSCRIBERS, "--credit", default=1000, least=1, text="The credit of a subscriber."),
    _number(QUEUES, "--qt", default=1, least=1, most=_MOST_CLIENTS, text="Queues or topics."),
    _flag(LOAD, "--single-connection", default=False, text="All clients of this process share a connection."),
    _number(LOAD, "--iterations", default=1, least=1, text="The number of repetitions of the test."),
    _number(QUEUES, "--queue-max-count", default=0, most=_MOST_IN_QUEUE, text="Limit of messages of a queue; 0: none."),
    _number(QUEUES, "--queue-max-size", default=0, most=_MOST_IN_QUEUE, text="Limit of bytes of a queue; 0: none."),
    option(QUEUES, "--base-name", default="perftest", show_default=True, help="The prefix of names."),
    _flag(QUEUES, "--queue-durable", default=False, text="Queues are durable, also if messages are not."),
    option(SUBSCRIBERS, "--interval-sub", "--interval_sub", "interval_sub_ms", default="0", type=Milliseconds(0),
           help="The pause after each received message, like 5ms; milliseconds without a unit."),
    option(PUBLISHERS, "--interval-pub", "--interval_pub", "interval_pub_ms", default="0", type=Milliseconds(0),
           help="The pause after each sent message, like 5ms; milliseconds without a unit."),
    option(LOAD, "--rate", "rate_per_s", default=0.0, type=Finite(0), metavar="N",
           help="Messages per second of all publishers together; times then begin when a message was due."),
    _number(TRANSACTIONS, "--tx", default=0, text="Publish and consume in transactions of N messages."),
    _number(TRANSACTIONS, "--pub-tx", default=0, text="Publish in transactions of N messages; replaces --tx."),
    _number(TRANSACTIONS, "--sub-tx", default=0, text="Consume in transactions of N messages; replaces --tx."),
    _flag(TRANSACTIONS, "--async-commit", default=False, text="Continue without waiting for the outcome of a commit."),
    _number(LOAD, "--processes", default=0, most=1000,
            text="Processes of publishers, and as many of subscribers; 0: one per processor."),
    option(QUEUES, "--queue-address", default=Addresses().queue, show_default=True, metavar="TEMPLATE",
           help="The address of a queue; {name} is its name."),
    option(QUEUES, "--topic-address", default=Addresses().topic, metavar="TEMPLATE", help="The address of a topic."),
    option(QUEUES, "--fanout-address", default=Addresses().fanout, show_default=True, help="The fanout exchange."),
    option(QUEUES, "--setup-command", default="", metavar="TEMPLATE",
           help="A shell command that creates a queue: {name}, {durable}, {max_count}, {max_size}."),
    option(LOAD, "--patience", "patience_s", default="60s", show_default=True, type=Duration(0),
           help="End the test after this time without progress; 0: never."),
    option(OUTPUT, "-s", "--summary", is_flag=True, help="A line for each iteration: pubs/s subs/s transfers/s MB/s."),
    output_options,
    option(
        OUTPUT, "--to", "result_file", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
        help="Write the JSON document there, too.",
    ),
    option(OUTPUT, "--live/--no-live", default=None, help="Show progress; by default on a terminal."),
)  # fmt: skip


@click.command("perftest", cls=GroupedCommand)
@perftest_options
@soak_options
@click.pass_context
def perftest(
    context: click.Context, /,
    url: str, user: str | None, ca: str | None, timeout_s: float,
    setup: bool, control: bool, publish: bool, subscribe: bool, summary: bool, tx: int, pub_tx: int, sub_tx: int,
    processes: int, setup_command: str, patience_s: float,
    output_format: str, result_file: str | None, live: bool | None, seconds: float | None, **load: Any,
) -> None:  # fmt: skip
    """Load a broker with messages and measure it.

    Without a role, this command runs the complete test. With roles, run --setup first and wait until it ends. Then
    start at the same time and with the same options: --subscribe --nsubs times, --publish --npubs times, and --control
    once, on any machines.

    With --soak, it starts a broker itself, kills it repeatedly while clients are connected, and checks that all
    confirmed messages are kept. The exit status is 0 if they are, 1 if they are not, and 2 if the command is wrong.
    """
    if result_file is not None:
        check_writable("--to", result_file)
    of_soak = [*map(load.pop, SoakOptions._fields[1:])]
    if seconds is not None:
        for name, value in DEFAULTS.items():
            if context.get_parameter_source(name) is ParameterSource.DEFAULT:
                load[name] = value
        if setup or control or publish or subscribe:
            raise click.UsageError("--soak does all by itself: leave out the roles")
        password = password_of(user) if user is not None else ""
        sys.exit(soak(SoakOptions(seconds, *of_soak), load | {"tx": tx}, user, password, output_format, result_file))
    try:
        options, warnings = checked(_options(load, pub_tx or tx, sub_tx or tx))
    except CairnError as error:
        raise click.UsageError(str(error)) from error
    for warning in warnings:
        click.echo(f"perftest: {warning}", err=True)
    where = login_of(url, user, ca, timeout_s)
    roles = Roles(control, publish, subscribe)
    every = not (setup or any(roles))
    if setup or every:
        how = set_up(where, options, setup_command)
        if not every:
            click.echo(
                f"{counted(len(options.queue_names()) + len(options.control_names()), 'empty queue')}, {how}",
                err=True,
            )
            if not any(roles):
                return
    if every:
        roles = Roles()
    screen = Screen(options, output_format=output_format, summary=summary, live=live)
    sys.exit(_run(where, options, roles, processes, patience_s, screen, result_file))


def _run(
    where: BrokerLogin, options: Options, roles: Roles, processes: int, patience_s: float, screen: Screen,
    output: str | None,
) -> int:
    running = TestRun(where, options, roles, processes)
    failure: CairnError | None = None
    status = 0
    try:
        with screen, terminable():
            running.run(screen.look, patience_s)
    except KeyboardInterrupt as error:
        status = status_of(error)
        running.stop()
    except CairnError as error:
        failure = error
        running.stop()
    finally:
        running.close()
    wrong = sum(sum(iteration.wrong().values()) for iteration in running.iterations)
    document = screen.document(running.iterations, str(failure or ("interrupted" if status else "")))
    try:
        screen.result(running.iterations, document)
    finally:
        if output is not None:
            write_out(output, document)
    if failure is not None:
        raise failure
    return status or (1 if wrong else 0)


def _options(load: dict[str, Any], pub_tx: int, sub_tx: int) -> Options:
    addresses = Addresses(load.pop("queue_address"), load.pop("topic_address"), load.pop("fanout_address"))
    for name, template in zip(("--queue-address", "--topic-address"), addresses, strict=False):
        try:
            if "x" not in template.format(name="x"):
                raise KeyError
        except (KeyError, IndexError, ValueError):
            raise click.UsageError(f"{name} {template}: it must have {{name}} in it, and no other braces") from None
    return Options(
        pubs=load.pop("npubs"), subs=load.pop("nsubs"), queues=load.pop("qt"), size_bytes=load.pop("size"),
        pub_tx=pub_tx, sub_tx=sub_tx, addresses=addresses, **load,
    )  # fmt: skip
