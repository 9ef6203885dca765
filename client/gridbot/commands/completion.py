"""`gridbot completion`: the shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what lets SHELL complete commands and options with the tab key.

    \b
    bash   echo 'eval "$(gridbot completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(gridbot completion zsh)"' >> ~/.zshrc
    fish   gridbot completion fish > ~/.config/fish/completions/gridbot.fish

    It holds in new terminals.  bash needs version 4.4 or newer.
    """
    found = get_completion_class(shell)
    assert found is not None  # of each choice
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "gridbot", "_GRIDBOT_COMPLETE").source())
