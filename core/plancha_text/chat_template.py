"""A model's chat template: messages in, the prompt's token ids out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog
from jinja2 import TemplateSyntaxError

from plancha.contracts import LoadError
from plancha.failure import RequestFailed, invalid
from plancha.messages import Int32s
from plancha_text.chat_messages import plain_messages
from plancha_text.control_tokens import ControlTokens
from plancha_text.encoding import encode_ids
from plancha_text.model_tokenizer import ModelTokenizer
from plancha_text.template_budget import RENDER_SECONDS, Budget, TooMuch, spending
from plancha_text.template_functions import TemplateRefused
from plancha_text.template_sandbox import TemplateSandbox

log = structlog.get_logger()

LONGEST_REFUSAL = 500
"""Characters shown of a message that a template refuses with."""


class ChatTemplate:
    """Renders and encodes chats, thread-safely. No special tokens but the template's own.

    A few templates put control tokens together out of pieces (`'<|' + role + '|>'`). They show when
    their rendering of a harmless chat encodes differently; for them special tokens are looked for
    in the rendered text, in which those that messages spell have been broken first.
    """

    def __init__(
        self, source: str, tokenizer: ModelTokenizer, seconds: float = RENDER_SECONDS
    ) -> None:
        self._seconds = seconds
        self._controls = ControlTokens(tokenizer.tokenizer, tokenizer.special)
        self._named = {name: self._controls.hide(text) for name, text in tokenizer.named.items()}
        try:
            self._template = TemplateSandbox().compile_checked(source, self._controls.hide)
        except TemplateSyntaxError as error:
            raise LoadError(
                f"the chat template has a mistake in line {error.lineno}: {error.message}."
            ) from error
        except RecursionError:
            raise LoadError("the chat template is nested too deeply.") from None
        except Exception as error:  # Jinja's output is Python, which has limits of its own
            raise LoadError(
                f"the chat template cannot be compiled ({type(error).__name__}):"
                " it nests or repeats too much."
            ) from None
        self._assembles = self._finds_assembled(tokenizer)
        if self._assembles:
            log.info("chat_template_assembles_control_tokens")

    def encode(self, messages: Sequence[Mapping[str, Any]]) -> Int32s:
        """The ids of the prompt, ready for the assistant's answer.

        Raises `RequestFailed` (param "messages") where messages are malformed or the template
        refuses, fails, or takes too much.
        """
        plain = plain_messages(messages)
        if not self._assembles:
            return self._controls.encode(self._render(plain))
        rendered = self._render([_texts_changed(each, self._controls.deface) for each in plain])
        return self._controls.encode(self._controls.hide(rendered))

    def _render(self, messages: list[dict[str, Any]]) -> str:
        variables = {
            **self._named,
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
        }
        spent = Budget(variables, self._seconds)
        parts = []
        try:
            with spending(spent):
                for part in self._template.generate(variables):
                    spent.tick()
                    spent.write(part)
                    parts.append(part)
            rendered = "".join(parts)
            rendered.encode()  # a template can spell half a surrogate pair
        except TemplateRefused as refusal:
            message = self._controls.show(str(refusal))[:LONGEST_REFUSAL]
            raise _failed(message or "The model's chat template refuses these messages.") from None
        except TooMuch:
            raise _failed("The model's chat template takes too much for these messages.") from None
        except Exception as error:  # anything: it is the template that failed, not the server
            log.warning("chat_template_failed", error=type(error).__name__)
            raise _failed("The model's chat template cannot take these messages.") from None
        return rendered

    def _finds_assembled(self, tokenizer: ModelTokenizer) -> bool:
        for chat in _HARMLESS:
            try:
                rendered = self._render(chat)
            except RequestFailed:
                continue  # it may well refuse some roles
            expected = encode_ids(tokenizer.tokenizer, self._controls.show(rendered))
            if not np.array_equal(expected, self._controls.encode(rendered)):
                return True
        return False


def _texts_changed(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _texts_changed(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_texts_changed(each, change) for each in value]
    return value


def _failed(message: str) -> RequestFailed:
    return invalid("messages", message)


def _said(*roles: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": "x"} for role in roles]


_HARMLESS = (_said("user"), _said("system", "user"), _said("user", "assistant", "user"))
