"""`cairnmq dev`: a broker to try, with a web console and samples."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import CairnError
from ...base.extras import install_hint
from ..common.local_directory import LocalDirectory
from .console import HTTP_PORT, missing_module

if TYPE_CHECKING:
    from ...broker_plugin.run import RunningBroker

STORE_DIR = "./cairnmq-data"
EXCHANGE = "shop"
QUEUES: dict[str, dict[str, Any]] = {
    "orders.dead": {},
    "orders": {"dead-letter-address": "orders.dead", "max-deliveries": 3},
    "invoices": {},
}
BINDINGS = {"orders": "order.#", "invoices": "*.paid"}
_DECLARE_S = 30.0
_CONFLICT = 409


@click.command("dev")
@click.option("--store-dir", type=LocalDirectory(file_okay=False), metavar="DIRECTORY", default=STORE_DIR,
              show_default=True, help="Data directory, created if it does not exist.")
@click.option("--memory", "in_memory", is_flag=True, help="Keep messages in memory only, without a directory.")
@click.option("--port", type=click.IntRange(0, 65535), default=5672, show_default=True,
              help="AMQP port; 0: any free port.")
@click.option("--http-port", type=click.IntRange(0, 65535), default=HTTP_PORT, show_default=True,
              help="Port of the web console; 0: any free port.")
@click.option("--no-samples", is_flag=True, help="Don't create the exchange and the queues.")
def dev(store_dir: str, in_memory: bool, port: int, http_port: int, no_samples: bool) -> None:
    """Run a broker to try, until Ctrl-C.

    It listens on this machine only and admits everyone there: the web console needs no login. The topic exchange
    `shop` routes to the queues `orders` and `invoices`; messages that fail three times move from `orders` to
    `orders.dead`. Other options come from the environment and from cairnmq.toml, as for `cairnmq broker`.
    """
    from .announcements import reporting_errors
    from .broker import broker, serve

    arguments = ["--port", str(port), "--log-level", "warning"]
    arguments += ["--store", "memory"] if in_memory else ["--store-dir", store_dir]
    if not missing_module():
        arguments += ["--http-port", str(http_port)]
    with broker.make_context("broker", arguments) as context:
        started = partial(_started, place="memory" if in_memory else store_dir, has_samples=not no_samples)
        serving = partial(serve, context=context, started=started)
        reporting_errors(serving)(**context.params)


def _started(running: RunningBroker, console_url: str, *, place: str, has_samples: bool) -> None:
    """Create the samples, and print what a user needs next."""
    url = f"amqp://{running.address}"
    rows = [
        ("AMQP", url),
        ("web console", console_url or f"not installed; {install_hint('console')}"),
        ("messages", f"in {place}"),
    ]
    if has_samples:
        try:
            _declare(running.port)
        except CairnError as error:
            logging.getLogger(__name__).warning("no samples were created: %s", error, extra={"event": "dev.no-samples"})
        else:
            rows.append(("samples", f"exchange {EXCHANGE}, queues {', '.join(reversed(QUEUES))}"))
    more = "" if url.endswith(":5672") else f" --url {url}"
    click.echo("\n".join(f"{name + ':':<13}{value}" for name, value in rows))
    click.echo("\nCtrl-C stops the broker. Try in another terminal:\n")
    click.echo(f"    cairnmq send{more} {EXCHANGE}/order.paid 'one cairn, please'\n    cairnmq receive{more} orders\n")


def _declare(port: int) -> None:
    """Create the exchange, the queues and the bindings, unless they exist. Raises `CairnError`."""
    from ...amqp.client.login import BrokerLogin
    from ...amqp.client.loop import Loop
    from ...amqp.client.management import Management
    from ...amqp.client.wire import Wire

    entities: list[tuple[str, str | None, dict[str, Any]]] = [
        *(("queue", name, {"arguments": arguments}) for name, arguments in QUEUES.items()),
        ("exchange", EXCHANGE, {"exchange-type": "topic"}),
        *(("binding", None, {"exchange": EXCHANGE, "queue": name, "key": key}) for name, key in BINDINGS.items()),
    ]
    with closing(Wire(BrokerLogin(port=port, timeout_s=_DECLARE_S), "cairnmq-dev")) as wire:
        management = Management(wire, Loop(wire))
        for type, name, body in entities:
            asked = {"operation": "CREATE", "type": type, **({} if name is None else {"name": name})}
            answer = management.ask(asked, body)
            if answer.status >= 400 and answer.status != _CONFLICT:  # changed since it was created
                raise CairnError(f"create {type} {name or body['queue']}", answer.description)
