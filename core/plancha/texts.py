"""What was said in a request, and what is promised of where it may be kept."""

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from plancha.failure import Failure, RequestFailed

UNREADABLE = Failure(
    "unavailable", "What is kept of prompts and outputs cannot be read now.", None, "texts_locked"
)

Prompt = str | tuple[int, ...]
"""As it was sent: text, or token ids."""


@attrs.frozen(kw_only=True)
class Exchange:
    """One request's prompts or messages as they were sent, and its outputs as far as they went."""

    request: str
    tenant: str
    model: str
    created: int  # wall clock, Unix seconds
    prompts: tuple[Prompt, ...] = attrs.field(repr=False)
    messages: tuple[Mapping[str, Any], ...] | None = attrs.field(repr=False)
    outputs: tuple[str, ...] = attrs.field(repr=False)
    tokens: int  # of it all, which is about how much it is


@attrs.frozen(kw_only=True)
class Kept:
    """What is kept of a request: texts, or where `hashed` a keyed hash in the place of each."""

    request: str
    tenant: str
    model: str
    created: int  # wall clock, Unix seconds
    until: int | None  # when it is due to be deleted; None: not by its age
    hashed: bool
    prompts: tuple[Any, ...] = attrs.field(repr=False)  # texts, lists of token ids, or hashes
    messages: Any = attrs.field(repr=False)  # a list of messages, or one hash; None: no chat
    outputs: tuple[str, ...] = attrs.field(repr=False)


class Texts(Protocol):
    """Keeps what each tenant's setting lets it. Called on the event loop, and never holds it up."""

    def keeps(self, tenant: str) -> bool:
        """Whether anything is kept of this tenant's requests that begin now."""
        ...

    def keep(self, exchange: Exchange) -> None:
        """By the setting as it is now. Returns at once and raises nothing."""
        ...

    async def find(self, request: str) -> Kept | None:
        """What is kept of a request, whoever asks.

        Raises `RequestFailed` ("unavailable") when it cannot be read.
        """
        ...

    async def delete(self, request: str) -> bool:
        """Whether there was something to delete. Raises as `find` does."""
        ...


class NoTexts:
    """Keeps nothing, of nobody."""

    def keeps(self, tenant: str) -> bool:
        """Never."""
        return False

    def keep(self, exchange: Exchange) -> None:
        """Let go of it."""

    async def find(self, request: str) -> Kept | None:
        """Nothing."""
        return None

    async def delete(self, request: str) -> bool:
        """There was nothing."""
        return False


def unreadable() -> RequestFailed:
    """Raised where what is kept cannot be read; why is in the log."""
    return RequestFailed(UNREADABLE)
