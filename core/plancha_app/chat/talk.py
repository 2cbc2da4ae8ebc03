"""A conversation on a terminal: what is typed, answers, and a few words that begin with a slash."""

from contextlib import aclosing

import anyio

from plancha_app.chat.answer import Answer, ask
from plancha_app.chat.conversation import Conversation
from plancha_app.chat.screen import Screen
from plancha_app.chat.typing_line import Keyboard
from plancha_app.complaints import CommandError
from plancha_app.keyboard import unechoed
from plancha_app.remote.address import Address
from plancha_app.remote.session import remote

SILENT_S = 600.0
COMMANDS = ("/clear", "/help", "/quit", "/system")
HELP = '''\
/system TEXT  tell the model TEXT before everything else
/system ""    tell it nothing; /system alone shows what it is told
/clear        forget what was said so far
/quit         leave, as Ctrl-D does

Ctrl-C ends an answer, or drops what is being typed. The arrow keys bring back
what was typed before. A line that ends with \\ goes on in the next, and so does
everything between two """. A message that begins with a slash is typed with a
space before it.
'''


class Talk:
    """Asks for messages until there are no more."""

    def __init__(
        self,
        address: Address,
        headers: dict[str, str],
        conversation: Conversation,
        keyboard: Keyboard,
    ) -> None:
        self._address = address
        self._headers = headers
        self._conversation = conversation
        self._keyboard = keyboard
        self._screen = Screen()

    def run(self) -> None:
        """Until Ctrl-D or /quit."""
        model = self._conversation.manner.model
        self._screen.note(f"{model} at {self._address} · /help for help, Ctrl-D leaves")
        while True:
            try:
                typed = self._keyboard.read()
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                self._screen.note("Ctrl-D leaves")
                continue
            if typed.is_command:
                if not self._obey(*typed.text.split(maxsplit=1)):
                    return
            elif typed.text:
                self._answer(typed.text)

    def _obey(self, command: str, words: str = "") -> bool:
        """Whether the conversation goes on."""
        match command:
            case "/quit" | "/exit" | "/bye":
                return False
            case "/help" | "/?":
                self._screen.note(HELP)
            case "/clear":
                count = self._conversation.clear()
                self._screen.note(f"{count} turn{'s' if count != 1 else ''} forgotten")
            case "/system":
                self._system(words.strip())
            case _:
                self._screen.complain(
                    f"there is no {command}; /help lists what there is. To send it, type a space "
                    "before it"
                )
        return True

    def _system(self, words: str) -> None:
        if words:
            self._conversation.system = words.strip('"').strip() or None
        told = self._conversation.system
        self._screen.note(f"the model is told: {told}" if told else "the model is told nothing")

    def _answer(self, message: str) -> None:
        answer, interrupted = Answer(), False
        try:
            with unechoed(), self._screen.answering():
                anyio.run(
                    stream,
                    self._address,
                    self._headers,
                    self._conversation,
                    message,
                    answer,
                    self._screen,
                )
        except KeyboardInterrupt:
            interrupted = True
        except CommandError as error:
            self._screen.complain(str(error))
        self._conversation.add(message, answer.text)
        self._screen.figures(answer, interrupted)


async def stream(
    address: Address,
    headers: dict[str, str],
    conversation: Conversation,
    message: str,
    answer: Answer,
    screen: Screen,
) -> None:
    """Show an answer as it comes. Raises `ServerError`."""
    async with (
        remote(address, headers, SILENT_S) as there,
        aclosing(ask(there, conversation.body(message), answer)) as pieces,
    ):
        async for piece in pieces:
            screen.show(piece)
