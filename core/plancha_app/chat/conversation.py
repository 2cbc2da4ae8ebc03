"""What has been said so far, as the next request carries it."""

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Manner:
    """How answers are asked for; None leaves it to the server."""

    model: str
    temperature: float | None = None
    max_tokens: int | None = None


@attrs.define(eq=False)
class Conversation:
    """Turns of a user and an assistant, after an optional system message."""

    manner: Manner
    system: str | None = None
    turns: list[tuple[str, str]] = attrs.field(factory=list)

    def body(self, message: str) -> dict[str, Any]:
        """The request that asks it."""
        messages = [_message("system", self.system)] if self.system else []
        for asked, answered in self.turns:
            messages += [_message("user", asked), _message("assistant", answered)]
        found: dict[str, Any] = {
            "model": self.manner.model,
            "messages": [*messages, _message("user", message)],
        }
        if self.manner.temperature is not None:
            found["temperature"] = self.manner.temperature
        if self.manner.max_tokens is not None:
            found["max_tokens"] = self.manner.max_tokens
        return found

    def add(self, message: str, answered: str) -> None:
        """Remember a turn, even one that was interrupted; one without an answer is forgotten."""
        if answered:
            self.turns.append((message, answered))

    def clear(self) -> int:
        """Forget all turns; how many there were."""
        count = len(self.turns)
        self.turns.clear()
        return count


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
