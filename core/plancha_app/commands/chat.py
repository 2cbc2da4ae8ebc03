"""`plancha chat`."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from plancha_app.commands.help_page import epilogue

chat = App(
    name="chat",
    help_epilogue=epilogue(
        ("plancha chat", "with the server on this machine"),
        ("plancha chat http://10.0.0.5:8000 --key-file key.txt", ""),
        ('plancha chat -p "Name three fruits."', "one answer, for scripts"),
        ("plancha chat --system 'Be brief.' < question.txt", ""),
        ("OPENAI_BASE_URL=https://api.openai.com/v1 plancha chat --model gpt-4.1", ""),
        codes="1 the server cannot be asked, or breaks off; 2 mistyped; 130 interrupted.",
    ),
)


@chat.default
def talk(
    url: str | None = None,
    /,
    *,
    prompt: Annotated[str | None, Parameter(name=("--prompt", "-p"))] = None,
    model: Annotated[str | None, Parameter(name=("--model", "-m"))] = None,
    system: Annotated[str | None, Parameter(name=("--system", "-s"))] = None,
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None,
    max_tokens: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    key_file: Path | None = None,
    history: bool = True,
) -> int:
    """Talk to a server, ours or any that speaks OpenAI's protocol.

    Ctrl-C ends an answer and not the program, Ctrl-D leaves, /help tells the
    rest. Where stdin is no terminal, it is one question, and stdout gets the
    answer alone.

    Parameters
    ----------
    url
        Where the server is; else what OPENAI_BASE_URL says, else http://127.0.0.1:8000.
    prompt
        Ask this, print the answer, and leave. stdin is not read.
    model
        Which one answers; without it, the first that the server lists.
    system
        What the model is told before everything else.
    temperature
        0 always takes the likeliest token. Without it, the server decides.
    max_tokens
        The most tokens an answer may have. Without it, the server decides.
    key_file
        A file that holds the API key; else it is what OPENAI_API_KEY says.
    history
        Keep what you type in ~/.local/state/plancha/chat_history, for the arrow keys next time.
    """
    from plancha_app.chat.command import ask_once, converse, manner_of, piped
    from plancha_app.chat.conversation import Conversation
    from plancha_app.remote.address import Address
    from plancha_app.remote.api_key import headers

    address, sent = Address.choose(url), headers(key_file)
    if prompt is None and not _is_terminal():
        prompt = piped()
    manner = manner_of(address, sent, model, temperature, max_tokens)
    conversation = Conversation(manner, system)
    if prompt is not None:
        return ask_once(address, sent, conversation, prompt)
    return converse(address, sent, conversation, keep_history=history)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
