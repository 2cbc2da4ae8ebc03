"""What help pages have in common: what people type, exit codes, and how a flag looks."""

from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
"""Off unless given."""


def epilogue(
    *examples: tuple[str, str], codes: str = "1 it failed; 2 mistyped; 130 interrupted."
) -> str:
    """Examples, each with what it does or "", and what exit codes other than 0 mean."""
    width = max((len(command) for command, meaning in examples if meaning), default=0)
    lines = [
        f"  $ {command:{width}}  # {meaning}" if meaning else f"  $ {command}"
        for command, meaning in examples
    ]
    return "\n".join(["Examples:", *lines, "", f"Exit codes: 0 done; {codes}"])
