"""`plancha top`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from plancha_app.commands.help_page import Flag, epilogue

top = App(
    name="top",
    help_epilogue=epilogue(
        ("plancha top", "the server on this machine"),
        ("plancha top http://10.0.0.5:8000 --key-file operator.key", ""),
        ("plancha top --once --json | jq .kv.used_share", ""),
        codes="1 the server cannot be asked; 2 mistyped; 130 interrupted.",
    ),
)


@top.default
def watch(
    url: str | None = None,
    /,
    *,
    interval: Annotated[float, Parameter(validator=Number(gte=0.25, lte=60))] = 1.0,
    once: Flag = False,
    json: Flag = False,
    key_file: Path | None = None,
) -> int:
    """Watch a server: its pace, its KV pool, the batch, the tenants' queues.

    An operator's key shows all of it, a tenant's its own. q leaves.

    Parameters
    ----------
    url
        Where the server is; else what OPENAI_BASE_URL says, else http://127.0.0.1:8000.
    interval
        Seconds from one look to the next.
    once
        Look for one interval, print one frame, and leave; so too where stdout is no terminal.
    json
        With --once: print what the server tells, and rates, as one object.
    key_file
        A file that holds the API key; else it is what OPENAI_API_KEY says.
    """
    from plancha_app.complaints import Mistake
    from plancha_app.remote.address import Address
    from plancha_app.remote.api_key import headers
    from plancha_app.top.command import run

    if json and not once:
        raise Mistake("--json is of one look: give --once with it")
    return run(Address.choose(url), headers(key_file), interval, once=once, as_json=json)
