"""`cairnmq cluster-lab`: a cluster of corosync daemons on this machine, to try things with. See `tools.cluster_lab`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from ...base.errors import CairnError
from ...base.texts import counted
from ...tools.lab.cluster_lab import PATH, Lab, NodeState
from ...tools.lab.cluster_lab_conf import MAX_NODES, TOKEN_MS, LabOptions
from ..common.output import print_rows
from ..common.units import Milliseconds
from ..options.common_options import CommonGroup, output_options
from ..options.confirmation import confirm, destructive

_NODE = click.argument("node", type=click.IntRange(1, MAX_NODES))


@click.group("cluster-lab", cls=CommonGroup)
@click.option("--name", default="lab", show_default=True, help="The name of the lab; several can run.")
@output_options
@click.pass_context
def cluster_lab(context: click.Context, /, name: str, **_: Any) -> None:
    """Run a cluster of corosync daemons on this machine for fault tests. Requires root.

    Each daemon has its own network namespace; the network of the machine is not changed. `run NODE COMMAND` starts a
    program in the namespace of a node, `down` removes everything.
    """
    context.obj = Lab(name)


@cluster_lab.command(short_help="Start a lab", example="cluster-lab up 3")
@click.argument("nodes", type=click.IntRange(1, MAX_NODES))
@click.option("--token", "token_ms", default=f"{TOKEN_MS}ms", show_default=True, type=Milliseconds(0.1),
              help="Token timeout of corosync.")  # fmt: skip
@click.option("--mtu", default=1500, show_default=True, type=click.IntRange(576, 9000), help="The MTU of the links.")
@click.option("--no-crypto", is_flag=True, help="Disable encryption and authentication.")
@destructive
@output_options
@click.pass_obj
def up(
    lab: Lab, nodes: int, token_ms: float, mtu: int, no_crypto: bool, is_sure: bool, is_dry_run: bool,
    output_format: str,
) -> None:  # fmt: skip
    """Start a lab of NODES nodes.

    A previous lab of that name is removed; this needs --yes without a terminal.
    """
    options = LabOptions(nodes, int(token_ms), not no_crypto, mtu)
    if is_dry_run:
        lab.check()
        removing = f"remove {lab.directory}, and " if lab.exists else ""
        click.echo(f"would {removing}start lab {lab.name} with {counted(nodes, 'node')}")
        return
    _confirm_removal("up", lab, is_sure=is_sure)
    lab.up(options)
    _tell(lab, output_format)


@cluster_lab.command(short_help="Remove the lab", example="cluster-lab down")
@destructive
@click.pass_obj
def down(lab: Lab, is_sure: bool, is_dry_run: bool) -> None:
    """Stop the daemons, and remove the lab.

    It needs --yes without a terminal.
    """
    if is_dry_run:
        click.echo(f"would remove lab {lab.name}: {lab.directory}" if lab.exists else f"there is no lab {lab.name}")
        return
    _confirm_removal("down", lab, is_sure=is_sure)
    lab.down()


def _confirm_removal(verb: str, lab: Lab, *, is_sure: bool) -> None:
    """Confirm the removal of a lab that exists."""
    if lab.exists:
        question = f"Stop the daemons of lab {lab.name}, and remove {lab.directory}?"
        confirm(f"cluster-lab {verb}: lab {lab.name}", question, is_sure=is_sure)


@cluster_lab.command(example="cluster-lab status")
@output_options
@click.pass_obj
def status(lab: Lab, output_format: str) -> None:
    """Show the membership as each node sees it."""
    _tell(lab, output_format)


def _add_node_command(verb: str, text: str) -> None:
    """Add the command that calls the method *verb* of the lab for one node."""
    @cluster_lab.command(verb, help=text, example=f"cluster-lab {verb} 2")
    @_NODE
    @click.pass_obj
    def change(lab: Lab, node: int) -> None:
        getattr(lab, verb)(node)


_add_node_command("kill", "Kill a node's daemon (SIGKILL).")
_add_node_command("stop", "Stop a node's daemon gracefully.")
_add_node_command("start", "Start a node's daemon again.")
_add_node_command("pause", "Suspend a node's daemon (SIGSTOP).")
_add_node_command("resume", "Resume a suspended daemon.")


@cluster_lab.command(short_help="Partition the nodes", example="cluster-lab partition 1,2 3")
@click.argument("sides", nargs=-1, required=True, metavar="SIDE...")
@click.pass_obj
def partition(lab: Lab, sides: tuple[str, ...]) -> None:
    """Partition the nodes: each SIDE is a list such as 1,2. The other nodes form one more side."""
    try:
        parted = [[int(node) for node in side.split(",")] for side in sides]
    except ValueError:
        raise click.BadParameter("a side is a list of nodes such as 1,2") from None
    lab.partition(*parted)


@cluster_lab.command(short_help="Drop all packets that a node sends", example="cluster-lab cut 2")
@_NODE
@click.option("--in", "ingress", is_flag=True, help="Drop frames that the node receives instead of those it sends.")
@click.pass_obj
def cut(lab: Lab, node: int, ingress: bool) -> None:
    """Drop all packets in one direction: those that the node sends."""
    lab.cut(node, egress=not ingress)


@cluster_lab.command(example="cluster-lab heal")
@click.pass_obj
def heal(lab: Lab) -> None:
    """Remove all partitions and cuts."""
    lab.heal()


@cluster_lab.command(
    short_help="Run a command in the network of a node",
    example="cluster-lab run 1 -- cairnmq broker --store-dir ./data",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@_NODE
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run(lab: Lab, node: int, command: tuple[str, ...]) -> None:
    """Run COMMAND in the network namespace of a node; the other nodes have the addresses 10.77.0.NODE."""
    words = lab.command(node, command[1:] if command[0] == "--" else command)
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, {**os.environ, "PATH": PATH})
    except OSError as error:
        raise CairnError(words[0], error.strerror or "it can't be run", "name an installed program") from error


def _tell(lab: Lab, output_format: str) -> None:
    found = lab.status()
    if not print_rows([one._asdict() for one in found], NodeState._fields, output_format):
        for one in found:
            click.echo(str(one))
