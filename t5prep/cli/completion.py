"""Define `t5prep completion`, which prints a shell's completion script."""

import click
from click import shell_completion

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print what makes SHELL complete t5prep's commands, tasks and options when you press Tab.

    \b
    Example:
      eval "$(t5prep completion bash)"          # in ~/.bashrc; zsh alike, in ~/.zshrc
      t5prep completion fish > ~/.config/fish/completions/t5prep.fish
    """
    from t5prep.cli import main

    completion_class = shell_completion.get_completion_class(shell)
    assert completion_class is not None, "click knows these shells"
    completion = completion_class(main, {}, "t5prep", "_T5PREP_COMPLETE")
    # `source()` is not used: it starts bash to find its version, and warns where there is no bash.
    click.echo(completion.source_template % completion.source_vars())
