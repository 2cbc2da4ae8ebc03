"""The `messages` of a chat, checked and reduced to role, content and name for a template."""

from collections.abc import Mapping

from plancha.failure import invalid
from plancha_transports.field_table import FieldTable
from plancha_transports.fields import array, check, string, table, wrong

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


@check(type="string", enum=["text"])
def _part_type(name: str, value: object) -> str:
    if value != "text":
        raise wrong(name, value, '"text": there are no other parts yet')
    return "text"


PART = FieldTable(checks={"type": _part_type, "text": string}, required=("type", "text"))


@check(type="string", minLength=1)
def _role(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(name, value, 'a role such as "user"')
    return value


@check(anyOf=[string.schema, {"type": "array", "items": PART.schema()}])
def _content(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(name, value, "a string or a list of text parts")
    return "".join([_part(f"{name}[{index}]", part) for index, part in enumerate(value)])


def _part(name: str, value: object) -> str:
    part = table(name, value)
    _part_type(f"{name}.type", part.get("type"))  # told first, whatever else such a part has
    return str(PART.read(part, f"{name}.")["text"])


MESSAGE = FieldTable(
    checks={
        "role": _role.described("What the model's chat template knows, such as user."),
        "content": _content,
        "name": string,
    },
    defaults_only=NOTHING_ELSE,
    required=("role", "content"),
)


@check(type="array", minItems=1, items=MESSAGE.schema())
def messages(name: str, value: object) -> tuple[Message, ...]:
    """A non-empty list of messages; lists of text parts are joined.

    Raises `RequestFailed`. What roles there are, and in which order, is the template's word.
    """
    found = array(name, value)
    if not found:
        raise invalid(name, f"{name} is empty; it must have at least one message.")
    one = MESSAGE.check()
    return tuple(one(f"{name}[{index}]", each) for index, each in enumerate(found))
