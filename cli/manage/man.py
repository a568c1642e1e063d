"""`cairnmq man`: the manual, also where no man pages are installed."""

from __future__ import annotations

from collections.abc import Iterator

import click


@click.command("man", short_help="Show the manual of a command")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def man(context: click.Context, names: tuple[str, ...]) -> None:
    """Show the manual of COMMAND and its subcommands, on a terminal in the pager (PAGER).

    The Debian package installs the same texts as man pages. pip installs no man pages.

    \b
    Examples:
      cairnmq man broker
      cairnmq man ctl queues
    """
    root = context.find_root()
    here = click.Context(root.command, info_name="cairnmq")
    for name in names:
        found = here.command.get_command(here, name) if isinstance(here.command, click.Group) else None
        if found is None:
            raise click.UsageError(f"No such command {' '.join(names)!r}; see cairnmq --help.", context)
        here = click.Context(found, parent=here, info_name=name)
    click.echo_via_pager("\n".join(_sections(here, is_deep=bool(names))))


def _sections(context: click.Context, *, is_deep: bool) -> Iterator[str]:
    """Yield the help of a command, and with *is_deep* that of its subcommands."""
    title = context.command_path.upper()
    yield f"{title}\n\n{context.command.get_help(context)}\n"
    if is_deep and isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            found = context.command.get_command(context, name)
            assert found is not None
            yield from _sections(click.Context(found, parent=context, info_name=name), is_deep=True)
