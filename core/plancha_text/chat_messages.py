"""A chat's messages as a template may see them: plain data, every text of it checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from plancha.failure import RequestFailed, invalid
from plancha_text.encoding import require_unicode

DEEPEST = 32
"""Levels of nesting in one message; tool calls need five."""


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A copy in dicts and lists, in which a message's `content` is one string.

    Text parts are joined as they are. Content may be missing only beside tool calls.
    Raises `RequestFailed` (param "messages") naming the place of the first mistake.
    """
    if not messages:
        raise _wrong("messages is empty; it must have at least one message.")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise _wrong(f"{place} is {_kind(message)}; it must be an object.")
    if not isinstance(message.get("role"), str):
        raise _wrong(f"{place}.role is {_kind(message.get('role'))}; it must be a string.")
    plain: dict[str, Any] = _plain(message, place, 0)
    plain["content"] = _content(plain, f"{place}.content")
    return plain


def _content(message: Mapping[str, Any], place: str) -> str | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part, f"{place}[{index}]") for index, part in enumerate(content))
    if content is None and message.get("tool_calls"):
        return None
    raise _wrong(f"{place} is {_kind(content)}; it must be a string or a list of text parts.")


def _part(part: Any, place: str) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "text"}:
            raise _wrong(f"{place}.text is {_kind(part.get('text'))}; it must be a string.")
        case {"type": str(kind)}:
            raise _wrong(f"{place}.type is {kind[:40]!r}; this model takes only text parts.")
    raise _wrong(f'{place} must be an object like {{"type": "text", "text": "…"}}.')


def _plain(value: Any, place: str, depth: int) -> Any:
    """A copy of JSON data; what could carry methods into a template is refused."""
    if depth > DEEPEST:
        raise _wrong(f"{place} is nested deeper than {DEEPEST} levels.")
    if isinstance(value, str):
        require_unicode(value, "messages", place)
        return value
    if isinstance(value, Mapping):
        return {
            _plain(key, place, depth): _plain(each, f"{place}.{key}", depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(each, f"{place}[{index}]", depth + 1) for index, each in enumerate(value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    raise _wrong(f"{place} is {_kind(value)}; it must be JSON.")


def _kind(value: Any) -> str:
    return "missing or null" if value is None else f"of type {type(value).__name__}"


def _wrong(message: str) -> RequestFailed:
    return invalid("messages", message)
