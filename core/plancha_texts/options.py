"""`[texts]`: where what tenants have kept is kept."""

from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class TextsTable:
    """Both are needed only as soon as some tenant's `retention` asks for them."""

    path: Path | None = None  # the file, SQLite, of texts and hashes
    secrets: Path | None = None  # the folder of the tenants' secrets to hash with
