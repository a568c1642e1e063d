"""`cairnmq ctl connectors`, `link-routes`, `auto-links` and `routers`."""

from __future__ import annotations

import click

from .ctl import Tools, deleting, group_of, with_tools

connectors = group_of("connector", "connectors", "Manage connections to other brokers.", "hub")
link_routes = group_of("link-route", "link-routes", "Manage link routes.", '"hub.*"')
auto_links = group_of("auto-link", "auto-links", "Manage bridges between queues and addresses.", "orders-in")
routers = group_of("router", "routers", "Show connected brokers.", "mq2")

deleting(connectors, "connector", "Delete a connector.", "hub")
deleting(link_routes, "link-route", "Delete a link route.", '"hub.*"')
deleting(auto_links, "auto-link", "Delete an auto-link.", "orders-in")


@connectors.command(
    "create", example='ctl connectors create hub "amqps://site-b@hub.example.org?password-file=hub-password"'
)
@click.argument("name")
@click.argument("target", metavar="URL")
@with_tools
def create_connector(tools: Tools, name: str, target: str) -> None:
    """Create a connection to another broker.

    URL is as in --connect-to of the broker. Files in it are names in the broker's --secrets-dir.
    """
    tools.client.ask("CREATE", "connector", name, {"url": target})
    tools.printer.done(f"created connector {name}")


@link_routes.command("create", example='ctl link-routes create "hub.*" hub --strip hub.')
@click.argument("pattern")
@click.argument("connector")
@click.option("--direction", type=click.Choice(["both", "send", "receive"]), default="both", show_default=True,
              help="Route only the links on which clients send, or receive.")  # fmt: skip
@click.option("--strip", default="", help="Prefix to remove from addresses.")
@with_tools
def create_link_route(tools: Tools, pattern: str, connector: str, direction: str, strip: str) -> None:
    """Route links by address pattern."""
    body = {"connector": connector, "direction": direction, "strip": strip}
    tools.client.ask("CREATE", "link-route", pattern, body)
    tools.printer.done(f"created link route {pattern}")


@auto_links.command("create", example="ctl auto-links create orders-in in orders hub")
@click.argument("name")
@click.argument("direction", type=click.Choice(["in", "out"]))
@click.argument("address")
@click.argument("connector")
@click.option("--external", default="", help="Address at the other broker, if it differs.")
@with_tools
def create_auto_link(tools: Tools, name: str, direction: str, address: str, connector: str, external: str) -> None:
    """Bridge a queue over a connector.

    in: messages of the other broker are moved to the queue ADDRESS; out: messages of ADDRESS are moved there.
    """
    body = {"direction": direction, "address": address, "connector": connector, "external": external}
    tools.client.ask("CREATE", "auto-link", name, body)
    tools.printer.done(f"created auto-link {name}")
