"""The `prompt` of a request: text or token ids, one or several."""

from plancha_transports.fields import array, check, string, token_ids, wrong

Prompt = str | tuple[int, ...]

_TEXT = {"type": "string"}
_IDS = {**token_ids.schema, "minItems": 1}


@check(anyOf=[_TEXT, _IDS])
def prompt(name: str, value: object) -> Prompt:
    """One prompt. Raises `RequestFailed`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong(name, value, "a string or a list of token ids")
    return _ids(name, value)


@check(
    anyOf=[
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
)
def prompts(name: str, value: object) -> tuple[Prompt, ...]:
    """One prompt or a list of them. Raises `RequestFailed`."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise wrong(name, value, "a string, a list of strings, of token ids, or of lists of these")
    if not value:
        raise wrong(name, value, "at least one prompt")
    if isinstance(value[0], str):
        return tuple(string(f"{name}[{index}]", each) for index, each in enumerate(value))
    if isinstance(value[0], list):
        return tuple(
            _ids(f"{name}[{index}]", array(f"{name}[{index}]", each))
            for index, each in enumerate(value)
        )
    return (_ids(name, value),)


def _ids(name: str, value: list[object]) -> tuple[int, ...]:
    if not value:
        raise wrong(name, value, "a list of at least one token id")
    return token_ids(name, value)
