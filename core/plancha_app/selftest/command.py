"""`plancha selftest isolation`: runs the checks against a server and prints what they came to."""

from http import HTTPStatus
from pathlib import Path
from secrets import token_hex

import anyio
import attrs
from rich.console import Console
from rich.table import Table

from plancha_app.complaints import Mistake
from plancha_app.machine_readable import show_json
from plancha_app.remote.address import Address
from plancha_app.remote.api_key import key_in
from plancha_app.selftest.isolation import Check, Trial, isolation
from plancha_app.selftest.tenant import SelftestError, tenant

SHOWN = {True: "[green]holds[/]", False: "[bold red]FAILS[/]", None: "[dim]see[/]"}


def run(
    url: str, key_file_a: Path, key_file_b: Path, trial: Trial, *, as_json: bool = False
) -> int:
    """Print a table of the checks. 0 when all of them hold, else 1.

    Raises `Mistake` for the keys, and `SelftestError` when it cannot be tested.
    """
    keys = [key_in(path) for path in (key_file_a, key_file_b)]
    if keys[0] == keys[1]:
        raise Mistake("both files hold the same key; two tenants are needed")
    checks = anyio.run(_checked, Address.parse(url).root, keys, trial)
    failed = sum(check.holds is False for check in checks)
    if as_json:
        show_json({"failed": failed, "checks": [attrs.asdict(check) for check in checks]})
        return 1 if failed else 0
    Console(soft_wrap=True).print(_table(checks))
    print(f"{failed} of {sum(check.holds is not None for check in checks)} checks fail")
    return 1 if failed else 0


async def _checked(url: str, keys: list[str], trial: Trial) -> list[Check]:
    async with tenant("anybody", url, token_hex()) as anybody:
        if (await anybody.look("/v1/models")).status == HTTPStatus.OK:
            raise SelftestError(f"{url} lets in whoever has any key: give its tenants keys first")
    async with tenant("A", url, keys[0]) as a, tenant("B", url, keys[1]) as b:
        return [check async for check in isolation(a, b, trial)]


def _table(checks: list[Check]) -> Table:
    table = Table(title="A and B are two tenants")
    for heading in ("check", "", "found"):
        table.add_column(heading)
    for check in checks:
        table.add_row(check.name, SHOWN[check.holds], check.detail)
    return table
