"""API keys as an operator meets them: shown once when made, kept only as a hash."""

import sys
from getpass import getpass
from secrets import token_urlsafe

from plancha.access import key_hash
from plancha_app.complaints import MISTAKE, complain
from plancha_app.machine_readable import show_json

RANDOM_BYTES = 32
LONGEST = 4096  # bytes, as the doors take them


def new_key() -> str:
    """A key that nobody has and nobody can guess."""
    return f"pk-{token_urlsafe(RANDOM_BYTES)}"


def show_new(tenant: str | None, *, as_json: bool = False) -> None:
    """Print a new key, and what goes into the deployment file. Nothing is stored."""
    key = new_key()
    if as_json:
        show_json({"tenant": tenant, "key": key, "hash": key_hash(key.encode())})
        return
    print(f"The key, shown only now:\n\n    {key}\n")
    print("For the deployment file, which holds no more than its hash:\n")
    if tenant is not None:
        print(f"    [tenants.{tenant}]" if "." not in tenant else f'    [tenants."{tenant}"]')
    print(f'    keys = ["{key_hash(key.encode())}"]')
    if tenant is not None:
        print('    retention = "none"')


def show_hash() -> int:
    """Print the hash of a key that is typed, unseen, or comes on stdin. The exit code."""
    if sys.stdin is None:
        key = b""
    elif sys.stdin.isatty():
        key = getpass("key: ").encode()
    else:
        key = sys.stdin.buffer.read(LONGEST + 2).removesuffix(b"\n").removesuffix(b"\r")
    if not key or len(key) > LONGEST or key != b"".join(key.split()):
        complain(f"a key is one word of 1 to {LONGEST} bytes, on stdin; never an argument")
        return MISTAKE
    print(key_hash(key))
    return 0
