"""`response_format` from the client to the model's logits, at every door."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import jsonschema
import openai
import pydantic
import pytest
import torch
import transformers

from plancha.contracts import Site
from plancha.options import structure
from plancha.testing.embedded import Limits, embedded
from plancha_engine.executor import torch_executor
from plancha_text.byte_text import EOS, byte_text
from plancha_text.text import ModelText, from_gguf
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "dish": {"type": "string", "minLength": 1, "maxLength": 8},
        "minutes": {"type": "integer", "minimum": 1, "maximum": 90},
    },
    "required": ["dish", "minutes"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA}}
MESSAGES: Any = [{"role": "user", "content": "What to cook?"}]


class Order(pydantic.BaseModel):
    dish: str = pydantic.Field(max_length=30)
    minutes: int = pydantic.Field(ge=1, le=90)
    spicy: bool
    kind: str = pydantic.Field(pattern="^(soup|salad|cake)$")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Random weights over the byte vocabulary, padded."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=264,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        bos_token_id=256,
        eos_token_id=EOS,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


@asynccontextmanager
async def serving(model: Path, text: ModelText) -> AsyncIterator[str]:
    """The address of a whole server."""
    limits = Limits()
    site = Site(
        max_sequences=limits.max_sequences,
        max_batched_tokens=limits.max_batched_tokens,
        max_waiting=limits.max_waiting,
        block_size=limits.block_size,
        model=str(model),
        vocabulary=text.vocabulary,
        plain_bytes=text.plain_bytes,
    )
    executor = torch_executor({"kv_memory": "64MiB", "threads": 1}, site)
    transport = HttpTransport(structure({"port": 0}, HttpOptions, ""))
    async with (
        embedded(executor, text, limits=limits) as kernel,
        anyio.create_task_group() as tasks,
    ):
        opened, address = anyio.Event(), [""]

        def started(url: str) -> None:
            address[0] = url
            opened.set()

        tasks.start_soon(transport.run, kernel.gateway, started)
        await opened.wait()
        try:
            yield address[0]
        finally:
            tasks.cancel_scope.cancel()


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def check(text: str | None) -> None:
    jsonschema.validate(json.loads(text or ""), SCHEMA)


async def test_every_door_of_openai_holds_every_output_to_the_schema(tiny: Path) -> None:
    async with serving(tiny, byte_text()) as url, client_of(url) as client:
        whole = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, response_format=FORMAT, n=3, seed=1
        )
        texts = [choice.message.content for choice in whole.choices]
        assert [choice.finish_reason for choice in whole.choices] == ["stop"] * 3
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, response_format=FORMAT, stream=True, seed=1
        )
        parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(parts) == texts[0]
        completions = await client.completions.create(
            model="tiny",
            prompt=["One: ", "Two: "],
            max_tokens=200,
            extra_body={"response_format": FORMAT},
        )
        texts += [choice.text for choice in completions.choices]
        for text in texts:
            check(text)
        assert len(set(texts)) == 5


async def test_generate_and_the_socket_mean_the_same_by_it(tiny: Path) -> None:
    body = {"prompt": "Cook: ", "temperature": 0, "response_format": FORMAT}
    async with serving(tiny, byte_text()) as url, aiohttp.ClientSession() as session:
        async with session.post(f"{url}/generate", json=body) as response:
            assert response.status == 200, await response.text()
            lines = (await response.text()).splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        text = "".join(event["text"] for event in events)
        check(text)
        async with session.ws_connect(f"{url}/v1/stream") as socket:
            await socket.send_json({"type": "generate", "id": "a", **body})
            messages = [await socket.receive_json()]
            while messages[-1]["type"] in ("queued", "token", "tokens"):
                messages.append(await socket.receive_json())
        assert messages[-1]["type"] == "done", messages[-1]
        assert "".join(message.get("text", "") for message in messages) == text


async def test_any_object_and_any_text(tiny: Path) -> None:
    async with serving(tiny, byte_text()) as url, client_of(url) as client:
        cut = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            max_tokens=1,
            response_format={"type": "json_object"},
        )
        assert cut.choices[0].finish_reason == "length"
        assert cut.choices[0].message.content == "{"
        create: Any = client.chat.completions.create
        texts = []
        for more in ({}, {"response_format": {"type": "text"}}):
            answer = await create(model="tiny", messages=MESSAGES, max_tokens=20, seed=4, **more)
            texts.append(answer.choices[0].message.content)
        assert texts[0] == texts[1]


async def test_a_schema_that_cannot_be_followed_is_a_400_at_once(tiny: Path) -> None:
    bad: Any = {"name": "order", "schema": {"type": "object", "minimum": "x", "not": {}}}
    async with serving(tiny, byte_text()) as url, client_of(url) as client:
        create: Any = client.chat.completions.create
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                await create(
                    model="tiny",
                    messages=MESSAGES,
                    stream=stream,
                    response_format={"type": "json_schema", "json_schema": bad},
                )
            assert refused.value.param == "response_format"
            assert refused.value.code == "invalid_schema"


@pytest.mark.model
async def test_the_default_model_fills_in_a_pydantic_model(model_file: Path) -> None:
    async with serving(model_file, from_gguf(model_file)) as url, client_of(url) as client:
        answer = await client.chat.completions.parse(
            model="tiny",
            messages=[{"role": "user", "content": "Order a soup, as JSON."}],
            response_format=Order,
            temperature=0,
            max_tokens=300,
        )
        assert answer.choices[0].finish_reason == "stop"
        order = answer.choices[0].message.parsed
        assert order is not None and order.kind in ("soup", "salad", "cake")
        assert answer.usage is not None and answer.usage.completion_tokens < 100
