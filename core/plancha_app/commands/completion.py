"""`plancha completion`."""

from typing import Literal

from cyclopts import App

from plancha_app.commands.help_page import epilogue

completion = App(
    name="completion",
    help_epilogue=epilogue(
        ("source <(plancha completion bash)", "in ~/.bashrc"),
        ("plancha completion zsh > ~/.zfunc/_plancha", "a folder of $fpath"),
        ("plancha completion fish > ~/.config/fish/completions/plancha.fish", ""),
        codes="2 mistyped; 130 interrupted.",
    ),
)


@completion.default
def show(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print what lets a shell complete commands and options.

    Parameters
    ----------
    shell
        Which one.
    """
    from plancha_app.commands.all import app

    print(app.generate_completion(prog_name="plancha", shell=shell))
    return 0
