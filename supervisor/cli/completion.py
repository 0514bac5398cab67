"""``tenure completion``: the script by which a shell completes the commands with Tab."""

from __future__ import annotations

import click

from supervisor.cli.help import SectionedCommand

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_TENURE_COMPLETE"


@click.command(cls=SectionedCommand)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print the completion script of a shell; its Tab then asks the command itself, so it is never out of date.

    \b
    Examples:
      tenure completion bash > /etc/bash_completion.d/tenure
      tenure completion fish > ~/.config/fish/completions/tenure.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root()
    made = found(root.command, {}, "tenure", _VARIABLE)
    click.echo(made.source_template % made.source_vars())
