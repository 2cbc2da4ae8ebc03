"""`plancha selftest isolation`: runs the checks against a server and prints what they came to."""

import sys
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from plancha_app.selftest.isolation import Check, Trial, isolation
from plancha_app.selftest.tenant import SelftestError, tenant

SHOWN = {True: "[green]holds[/]", False: "[bold red]FAILS[/]", None: "[dim]see[/]"}


def run(url: str, key_file_a: Path, key_file_b: Path, trial: Trial) -> int:
    """Print a table of the checks. 0 when all of them hold, 1 when not or it cannot be tested."""
    try:
        keys = [_key(path) for path in (key_file_a, key_file_b)]
        if keys[0] == keys[1]:
            raise SelftestError("both files hold the same key; two tenants are needed")
        checks = anyio.run(_checked, url.rstrip("/"), keys, trial)
    except SelftestError as error:
        print(f"plancha: {error}", file=sys.stderr)
        return 1
    failed = sum(check.holds is False for check in checks)
    Console(soft_wrap=True).print(_table(checks))
    print(f"{failed} of {sum(check.holds is not None for check in checks)} checks fail")
    return 1 if failed else 0


async def _checked(url: str, keys: list[str], trial: Trial) -> list[Check]:
    async with tenant("A", url, keys[0]) as a, tenant("B", url, keys[1]) as b:
        return [check async for check in isolation(a, b, trial)]


def _key(path: Path) -> str:
    try:
        key = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no key"
        raise SelftestError(f"{path}: the key cannot be read: {reason}") from None
    if not key or len(key.split()) != 1:
        raise SelftestError(f"{path}: holds no key, which is one word")
    return key


def _table(checks: list[Check]) -> Table:
    table = Table(title="A and B are two tenants")
    for heading in ("check", "", "found"):
        table.add_column(heading)
    for check in checks:
        table.add_row(check.name, SHOWN[check.holds], check.detail)
    return table
