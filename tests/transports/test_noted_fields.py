"""Fields that clients send for somebody else's books."""

from typing import Any

import pytest


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user", "me"),
        ("user", ""),
        ("safety_identifier", "ü" * 1000),
        ("prompt_cache_key", "key"),
        ("metadata", {}),
        ("metadata", {"trace": "1", "kind": ""}),
        ("store", False),
    ],
)
async def test_any_value_of_the_right_type_does_nothing(
    serve: Any, says: Any, path: str, field: str, value: Any
) -> None:
    asked: dict[str, Any] = {"prompt": "x"}
    if "chat" in path:
        asked = {"messages": [{"role": "user", "content": "x"}]}
    async with serve(says("Hi")) as server:
        async with server.session.post(server.url + path, json={**asked, field: value}) as response:
            assert response.status == 200
            assert b"error" not in await response.read()
