"""`plancha selftest`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from plancha_app.commands.help_page import Flag, epilogue

selftest = App(
    name="selftest",
    help="Ask a running server to show what it promises.",
    help_epilogue=epilogue(
        (
            "plancha selftest isolation http://127.0.0.1:8000 \\\n"
            "      --key-file-a acme.key --key-file-b trial.key",
            "",
        ),
        codes="1 a promise is broken, or the server cannot be asked; 2 mistyped; 130 interrupted.",
    ),
)


@selftest.command
def isolation(
    url: str,
    /,
    *,
    key_file_a: Path,
    key_file_b: Path,
    characters: Annotated[int, Parameter(validator=Number(gte=1))] = 800,
    rounds: Annotated[int, Parameter(validator=Number(gte=1))] = 12,
    prefix: str = "",
    json: Flag = False,
) -> int:
    """Check that of two tenants neither can tell what the other asks. Exit code 1 if one can.

    Parameters
    ----------
    url
        Where the server is, such as http://127.0.0.1:8000.
    key_file_a
        A file that holds the one tenant's key, on which the load falls.
    key_file_b
        A file that holds the other's, who must be no operator.
    characters
        Of each prompt, random words; some blocks of the KV cache must be filled.
    rounds
        How often times are compared.
    prefix
        What every prompt begins with, such as a system prompt of yours.
    json
        Print an object with the checks and how many of them fail.
    """
    from plancha_app.selftest.command import run
    from plancha_app.selftest.isolation import Trial

    trial = Trial(characters=characters, rounds=rounds, prefix=prefix)
    return run(url, key_file_a, key_file_b, trial, as_json=json)
