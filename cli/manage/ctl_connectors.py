"""`cairnmq ctl connectors`, `link-routes`, `auto-links` and `routers`."""

from __future__ import annotations

import click

from .ctl import Tools, deleting, group_of, with_tools

connectors = group_of("connector", "connectors", "Connections that the broker keeps to other containers.")
link_routes = group_of("link-route", "link-routes", "Addresses whose links go on to another container.")
auto_links = group_of("auto-link", "auto-links", "Queues that are joined with addresses of another container.")
routers = group_of("router", "routers", "Brokers that this one is joined with.")

deleting(connectors, "connector")
deleting(link_routes, "link-route")
deleting(auto_links, "auto-link")


@connectors.command("create")
@click.argument("name")
@click.argument("url")
@with_tools
def create_connector(tools: Tools, name: str, url: str) -> None:
    """Keep a connection to the container at URL, as --connect-to of the broker takes it. Files are names in the
    broker's --secrets-dir."""
    tools.client.ask("CREATE", "connector", name, {"url": url})
    tools.printer.done(f"connector {name} is there")


@link_routes.command("create")
@click.argument("pattern")
@click.argument("connector")
@click.option("--direction", type=click.Choice(["both", "send", "receive"]), default="both", show_default=True)
@click.option("--strip", default="", help="What to take off the beginning of addresses.")
@with_tools
def create_link_route(tools: Tools, pattern: str, connector: str, direction: str, strip: str) -> None:
    """Have links to addresses that fit a pattern go on over a connector."""
    body = {"connector": connector, "direction": direction, "strip": strip}
    tools.client.ask("CREATE", "link-route", pattern, body)
    tools.printer.done(f"link route {pattern} is there")


@auto_links.command("create")
@click.argument("name")
@click.argument("direction", type=click.Choice(["in", "out"]))
@click.argument("address")
@click.argument("connector")
@click.option("--external", default="", help="The address at the other container, if it is another one.")
@with_tools
def create_auto_link(tools: Tools, name: str, direction: str, address: str, connector: str, external: str) -> None:
    """Have messages come in to the queue ADDRESS from over a connector, or go out of it."""
    body = {"direction": direction, "address": address, "connector": connector, "external": external}
    tools.client.ask("CREATE", "auto-link", name, body)
    tools.printer.done(f"auto-link {name} is there")
