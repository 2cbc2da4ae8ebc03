"""`[texts]`: where what tenants have kept is kept."""

from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class TextsTable:
    """Where what tenants have kept of prompts and outputs is kept.

    Paths are relative to the file's folder.
    """

    path: Path | None = None
    """A file of SQLite's, for texts and hashes. Left out: only while every `retention` is `none`.
    """

    secrets: Path | None = None
    """A folder, for what hashes are made with. Left out: only while no `retention` is `hash`."""

    def beside(self, folder: Path) -> "TextsTable":
        """The same with its paths seen from `folder`."""
        return TextsTable(
            path=None if self.path is None else folder / self.path,
            secrets=None if self.secrets is None else folder / self.secrets,
        )
