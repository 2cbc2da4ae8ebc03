"""`[texts]`: where what tenants have kept is kept."""

from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class TextsTable:
    """Both are needed only as soon as some tenant's `retention` asks for them.

    Paths are relative to the deployment's file.
    """

    path: Path | None = None  # the file, SQLite, of texts and hashes
    secrets: Path | None = None  # the folder of the tenants' secrets to hash with

    def beside(self, folder: Path) -> "TextsTable":
        """The same with its paths seen from `folder`."""
        return TextsTable(
            path=None if self.path is None else folder / self.path,
            secrets=None if self.secrets is None else folder / self.secrets,
        )
