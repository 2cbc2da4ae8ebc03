"""`plancha keys`."""

from cyclopts import App

from plancha_app.commands.help_page import Flag, epilogue
from plancha_app.complaints import MISTAKE, complain

keys = App(
    name="keys",
    help="Make an API key, or the hash of one that there is.",
    help_epilogue=epilogue(
        ("plancha keys new acme", "shows a key once, and the lines for the file"),
        ("plancha keys new acme --json | jq -r .key > acme.key", ""),
        ("plancha keys hash < acme.key", "the line that lets it in"),
        codes="2 mistyped, or no key; 130 interrupted.",
    ),
)


@keys.command
def new(tenant: str | None = None, /, *, json: Flag = False) -> int:
    """Print a new key once, and the line with its hash for the deployment file.

    Parameters
    ----------
    tenant
        Whose it will be: the NAME of [tenants.NAME].
    json
        Print an object with the key, its hash and the tenant.
    """
    from plancha_app.keys import show_new
    from plancha_app.tenant_tables import NAME_RIGHT, is_tenant_name

    if tenant is not None and not is_tenant_name(tenant):
        complain(f"{tenant!a} is no tenant's name; it must be {NAME_RIGHT}")
        return MISTAKE
    show_new(tenant, as_json=json)
    return 0


@keys.command(name="hash")
def hash_() -> int:
    """Print the hash of a key, read from stdin so that it shows in no list of processes."""
    from plancha_app.keys import show_hash

    return show_hash()
