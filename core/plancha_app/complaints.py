"""What a command tells instead of a traceback, and what the process leaves with then."""

import errno
import sys
import unicodedata

FAILED = 1
"""Exit code for what was right to ask and did not work."""

MISTAKE = 2
"""Exit code for what was typed, or is in a file, and can be put right."""

INTERRUPTED = 130
"""Exit code after SIGINT, by the shell's convention."""

_PUT_RIGHT = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST}


NEWLINE = "\n"

JOINERS = "\u200c\u200d"
"""Persian and Hindi cannot be written without them, nor many an emoji."""


class CommandError(Exception):
    """Told in one line; the process leaves with `code`."""

    code = FAILED


class Mistake(CommandError):
    """Of whoever typed the command; the message says what would be right."""

    code = MISTAKE


def complain(text: str) -> None:
    """A line on stderr, whatever is in it, if anybody listens there."""
    print(f"plancha: {printable(text, keep=NEWLINE)}", file=sys.stderr)


def tell_mistakes(source: str, problems: tuple[str, ...]) -> int:
    """Each on its own line. The exit code."""
    count = len(problems)
    print(f"{source}: {count} mistake{'s' if count > 1 else ''}", file=sys.stderr)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)
    return MISTAKE


def tell_error(error: Exception) -> int | None:
    """Tell what is no fault of the program's. The exit code; None: it is one."""
    from plancha.contracts import LoadError  # only a command that failed has imported so much

    match error:
        case CommandError():
            complain(str(error))
            return error.code
        case LoadError():
            complain(str(error))
            return FAILED
        case OSError(filename=str() as name, strerror=str() as reason):
            complain(f"{name}: {reason}")
            return MISTAKE if error.errno in _PUT_RIGHT else FAILED
        case OSError(errno=errno.ENOSPC | errno.EIO | errno.EDQUOT, strerror=str() as reason):
            complain(f"cannot write: {reason}")
            return FAILED
    return None


def printable(text: str, keep: str = "") -> str:
    """The same with what no terminal should be sent escaped: others may have written it."""
    return "".join(
        each if each in keep or _is_harmless(each) else ascii(each)[1:-1] for each in text
    )


def _is_harmless(character: str) -> bool:
    """Letters of every script, with their joiners; spaces of every width; emoji yet to come."""
    category = unicodedata.category(character)
    return character in JOINERS or category not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
