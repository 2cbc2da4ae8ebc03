"""The `messages` of a chat, checked and reduced to role, content and name for a template."""

from collections.abc import Mapping

from plancha.failure import invalid
from plancha_transports.fields import Check, array, read, string, table, wrong

Message = Mapping[str, str]

NOTHING_ELSE: Mapping[str, tuple[object, ...]] = {
    # What clients send back when they repeat an answer of ours, at the values that mean nothing.
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}


def messages(name: str, value: object) -> tuple[Message, ...]:
    """A non-empty list of messages; lists of text parts are joined.

    Raises `RequestFailed`. What roles there are, and in which order, is the template's word.
    """
    found = array(name, value)
    if not found:
        raise invalid(name, f"{name} is empty; it must have at least one message.")
    return tuple(_message(f"{name}[{index}]", each) for index, each in enumerate(found))


def _message(name: str, value: object) -> Message:
    checks: Mapping[str, Check] = {"role": _role, "content": _content, "name": string}
    message = read(table(name, value), checks, NOTHING_ELSE, f"{name}.")
    for wanted in ("role", "content"):
        if wanted not in message:
            raise invalid(f"{name}.{wanted}", f"{name} has no {wanted}.")
    return message


def _role(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(name, value, 'a role such as "user"')
    return value


def _content(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(name, value, "a string or a list of text parts")
    return "".join([_part(f"{name}[{index}]", part) for index, part in enumerate(value)])


def _part(name: str, value: object) -> str:
    part = table(name, value)
    if part.get("type") != "text":
        raise wrong(f"{name}.type", part.get("type"), '"text": there are no other parts yet')
    found = read(part, {"type": string, "text": string}, {}, f"{name}.")
    if "text" not in found:
        raise invalid(f"{name}.text", f"{name} has no text.")
    return str(found["text"])
