"""`plancha chat`: a conversation where there is a terminal, else one question and its answer."""

import sys

import anyio

from plancha_app.chat.answer import Answer
from plancha_app.chat.conversation import Conversation, Manner
from plancha_app.chat.history import History, history_file
from plancha_app.chat.screen import Screen
from plancha_app.chat.talk import COMMANDS, Talk, stream
from plancha_app.chat.typing_line import Keyboard
from plancha_app.complaints import Mistake, complain
from plancha_app.remote.address import Address
from plancha_app.remote.session import remote


def converse(
    address: Address,
    headers: dict[str, str],
    conversation: Conversation,
    *,
    keep_history: bool,
) -> int:
    """Until the user leaves. The exit code."""
    history = History(history_file() if keep_history else None)
    try:
        Talk(address, headers, conversation, Keyboard(history, COMMANDS)).run()
    finally:
        history.close()
    return 0


def ask_once(
    address: Address, headers: dict[str, str], conversation: Conversation, prompt: str
) -> int:
    """Print the answer and nothing else. Raises `Mistake` and `ServerError`."""
    if not prompt.strip():
        raise Mistake("nothing is asked: the prompt is empty")
    answer, screen = Answer(), Screen()
    with screen.answering():
        anyio.run(stream, address, headers, conversation, prompt, answer, screen)
    if answer.finish_reason == "length":
        complain("the answer is cut off at the token limit, which --max-tokens sets")
    return 0


def piped() -> str:
    """All of stdin, without the line's end that a pipe adds. Raises `Mistake`."""
    if sys.stdin is None:
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise Mistake("stdin holds no text in UTF-8") from None


def manner_of(
    address: Address,
    headers: dict[str, str],
    model: str | None,
    temperature: float | None,
    max_tokens: int | None,
) -> Manner:
    """With the first model that the server lists, if none is named. Raises `ServerError`."""
    return Manner(
        model=model or anyio.run(_first_model, address, headers),
        temperature=temperature,
        max_tokens=max_tokens,
    )


async def _first_model(address: Address, headers: dict[str, str]) -> str:
    async with remote(address, headers) as there:
        return (await there.models())[0]
