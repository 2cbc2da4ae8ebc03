"""Asking a model on the page."""

from typing import Any

from browser import CTRL, Tab
from cable import cable_to
from plancha.testing.embedded import Limits
from plancha.testing.gate import GatedExecutor

ENABLED = "!document.querySelector('#model').disabled"
RUNNING = "!document.querySelector('#stop-button').disabled"
ENDED = "document.querySelector('#stop-button').disabled"
LAST = ".turn:last-of-type"


async def open_page(tab: Tab, server: Any, url: str = "") -> None:
    await tab.open(url or server.url)
    await tab.until(ENABLED)
    # The scripted model has no chat template.
    await tab.look("document.querySelector('input[value=raw]').click()")
    await tab.look("document.querySelector('#prompt').focus()")


async def ask(tab: Tab, prompt: str) -> None:
    await tab.type(prompt)
    await tab.press("Enter", CTRL)


async def answer_of(tab: Tab, turn: str = LAST) -> str:
    return await tab.text(f"{turn} .answer")


async def test_a_prompt_is_answered_as_its_tokens_come(tab: Tab, serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(*b"Salut!", 257))
    async with serve(gated) as server:
        await open_page(tab, server)
        await ask(tab, "Say hello")
        await gated.run(3)
        await tab.until("document.querySelector('.turn .answer').textContent === 'Sal'")
        assert await tab.text(".turn .asked") == "Say hello"
        await gated.run(4)
        await tab.until(ENDED)
        assert await answer_of(tab) == "Salut!"
        measured = await tab.text(".turn .measured")
        assert "first token" in measured
        assert "tokens/s" in measured
        assert "7 tokens" in measured  # the eos is one too
        assert await tab.look("document.activeElement.id") == "prompt"
        announced = await tab.look("document.querySelector('#announcement').textContent")
        assert announced == "Answer complete, 7 tokens"


async def test_the_fields_of_sampling_are_what_is_asked_with(
    tab: Tab, serve: Any, emits: Any, until: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        await open_page(tab, server)
        await tab.look("document.querySelector('.sampling').open = true")
        fields = {"temperature": "0.5", "top_p": "0.9", "max_tokens": "3", "seed": "7", "stop": "Z"}
        for name, value in fields.items():
            await tab.look(f"document.querySelector('#{name}').focus()")
            await tab.look(f"document.querySelector('#{name}').select()")
            await tab.type(value)
        await tab.look("document.querySelector('#prompt').focus()")
        await ask(tab, "x")
        await gated.started()
        (sequence,) = server.kernel.planner.sequences.values()
        sampling = sequence.request.sampling
        assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 7)
        assert sequence.request.max_tokens == 3
        assert sequence.request.stop_strings
        gated.open()
        await tab.until(ENDED)
        assert "ended at the limit of tokens" in await tab.text(".turn .measured")


async def test_stop_ends_the_answer_and_keeps_what_had_come(
    tab: Tab, serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(65))
    async with serve(gated) as server:
        await open_page(tab, server)
        await ask(tab, "x")
        await gated.run(2)
        await tab.until("document.querySelector('.turn .answer').textContent === 'AA'")
        await tab.click("#stop-button")
        await gated.started()
        gated.open()
        await tab.until(ENDED)
        await server.quiet()
        assert (await answer_of(tab)).startswith("AA")
        assert "stopped" in await tab.text(".turn .measured")
        await ask(tab, "y")  # and the page goes on
        await tab.until(RUNNING)
        await tab.press("Escape")
        await tab.until(ENDED)
        await server.quiet()


async def test_a_flood_of_tokens_leaves_the_page_usable(tab: Tab, serve: Any, emits: Any) -> None:
    """Prompts of 150 tokens and outputs as long as the context allows, one after another."""
    async with serve(emits(65)) as server:
        await open_page(tab, server)
        for _ in range(3):
            await ask(tab, "x" * 50)
            await tab.until(ENDED)
        assert len(await answer_of(tab)) == 256 - 50


async def test_what_goes_wrong_is_said_in_words_and_can_be_tried_again(
    tab: Tab, serve: Any, emits: Any
) -> None:
    async with serve(emits(*b"AB", 257, failing=frozenset({(0, 1)}))) as server:
        await open_page(tab, server)
        await ask(tab, "x")
        await tab.until("document.querySelector('.turn .failed button')")
        assert await tab.look("document.querySelector('.turn .failed').role") == "alert"
        assert "engine" in (await tab.text(".turn .failed")).lower()
        assert await answer_of(tab) == "A"
        await tab.click(".turn .failed button")
        await tab.until("document.querySelector('.turn .answer').textContent === 'AB'")
        await tab.until("document.querySelector('.turn .failed').hidden")


async def test_a_full_queue_says_when_to_try_again(tab: Tab, serve: Any, emits: Any) -> None:
    gated = GatedExecutor(emits(65))
    limits = Limits(max_sequences=1, max_waiting=1)
    async with serve(gated, limits=limits) as server:
        await open_page(tab, server)
        async with server.session.ws_connect(server.url + "/v1/stream") as other:
            for number in range(2):
                await other.send_json({"type": "generate", "id": str(number), "prompt": "x"})
                await other.receive_json()
            await gated.started()
            await ask(tab, "x")
            await tab.until("document.querySelector('.turn .failed button')")
            button = "document.querySelector('.turn .failed button')"
            assert "busy" in await tab.text(".turn .failed")
            assert (await tab.look(f"{button}.textContent")).startswith("Try again")
            gated.open()
            await tab.until(f"!{button}.disabled")


async def test_what_no_server_would_take_is_said_before_it_is_sent(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server:
        await open_page(tab, server)
        await tab.look("document.querySelector('#top_p').value = '7'")
        await ask(tab, "x")
        await tab.until("document.querySelector('.sampling').open")
        assert await tab.look("document.querySelectorAll('.turn').length") == 0
        assert await tab.look("document.querySelector('#prompt').value") == "x"


async def test_a_chat_goes_on_with_what_has_been_said(tab: Tab, serve: Any, says: Any) -> None:
    """Seen at the socket, since the scripted model has no template."""
    async with serve(says("Hi")) as server:
        await tab.open(server.url)
        await tab.until(ENABLED)
        await tab.look(
            "window.sent = []; const send = WebSocket.prototype.send;"
            "WebSocket.prototype.send = function (text) {"
            "  const message = JSON.parse(text); window.sent.push(structuredClone(message));"
            "  if (message.messages) { message.prompt = 'x'; delete message.messages; }"
            "  return send.call(this, JSON.stringify(message)); };"
        )
        await tab.look("document.querySelector('#system').value = 'Be brief.'")
        await tab.look("document.querySelector('#prompt').focus()")
        for prompt in ("One?", "Two?"):
            await ask(tab, prompt)
            await tab.until(RUNNING + " || " + ENDED)
            await tab.until(
                ENDED + " && document.querySelector('.turn:last-of-type .answer').textContent"
            )
        first, second = await tab.look("window.sent")
        assert first["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "One?"},
        ]
        assert second["messages"] == [
            *first["messages"],
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Two?"},
        ]
        await tab.click("#new-conversation")
        assert await tab.look("document.querySelectorAll('.turn').length") == 0


async def test_a_lost_connection_is_made_anew_and_the_conversation_stays(
    tab: Tab, serve: Any, emits: Any
) -> None:
    gated = GatedExecutor(emits(*b"AB", 257))
    async with serve(gated) as server, cable_to(server.port) as cable:
        await open_page(tab, server, f"http://127.0.0.1:{cable.port}")
        await ask(tab, "x")
        await gated.run(1)
        await tab.until("document.querySelector('.turn .answer').textContent === 'A'")
        await gated.started()
        cable.cut()
        await tab.until("document.querySelector('.turn .failed strong')")
        assert "connection was lost" in await tab.text(".turn .failed")
        assert await answer_of(tab) == "A"
        gated.open()
        await tab.until("document.querySelector('#state').textContent === 'Ready'")
        await ask(tab, "y")
        await tab.until("document.querySelectorAll('.turn').length === 2")
        await tab.until("document.querySelector('.turn:last-of-type .answer').textContent === 'AB'")
        assert await tab.text(".turn .asked") == "x"
        tab.complaints.clear()  # whatever was being fetched just then


async def test_a_server_that_comes_back_with_another_model_is_asked_for_that_one(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server, cable_to(server.port) as cable:
        await open_page(tab, server, f"http://127.0.0.1:{cable.port}")
        cable.cut()
        await tab.until("document.querySelector('#state').textContent !== 'Ready'")
        server.gateway.model = "another"
        await tab.until("document.querySelector('#model').value === 'another'")
        await tab.until("document.querySelector('#state').textContent === 'Ready'")
        await ask(tab, "x")
        await tab.until("document.querySelector('.turn .answer')?.textContent === 'Hi'")
        tab.complaints.clear()


async def test_a_server_that_comes_back_without_its_model_is_not_called_ready(
    tab: Tab, serve: Any, says: Any
) -> None:
    async with serve(says("Hi")) as server, cable_to(server.port) as cable:
        await open_page(tab, server, f"http://127.0.0.1:{cable.port}")
        server.gateway.state, server.gateway.reason = "loading", "loading weights"
        cable.cut()
        await tab.until(
            "document.querySelector('#state').textContent.startsWith('Not ready: loading weights')"
        )
        server.gateway.state = "ready"
        await tab.until("document.querySelector('#state').textContent === 'Ready'")
        tab.complaints.clear()
