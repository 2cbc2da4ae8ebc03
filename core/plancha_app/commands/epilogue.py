"""What stands below the options of every help page: what people type, and exit codes."""


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
