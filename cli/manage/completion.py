"""`cairnmq completion`, and the completion of names from a running broker."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from ...base.errors import CairnError
from ..common.login_options import login_of, requests_password

SHELLS = ("bash", "zsh", "fish")
DEADLINE_S = 1.0
"""The timeout for names from a broker; without an answer no names are completed."""


@click.command("completion", short_help="Print a shell completion script")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and names in SHELL.

    \b
    Examples:
      eval "$(cairnmq completion bash)"
      cairnmq completion zsh > ~/.zfunc/_cairnmq
      cairnmq completion fish > ~/.config/fish/completions/cairnmq.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "cairnmq", "_CAIRNMQ_COMPLETE").source())


class NameOf(click.ParamType[str]):
    """A name of that entity type of management, completed by the broker of `ctl`."""

    name = "text"

    def __init__(self, type: str) -> None:
        self._type = type

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        url, user, ca = (ctx.params.get(name) for name in ("url", "user", "ca"))
        if url is None:
            return []
        from .ctl_client import ManagementClient

        client = ManagementClient(lambda: login_of(url, user, ca, DEADLINE_S), DEADLINE_S)
        try:
            if requests_password(url, user):
                return []
            found = [str(row["name"]) for row in client.rows(self._type)]
        except (CairnError, click.ClickException, OSError):
            return []
        finally:
            client.close()
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]
