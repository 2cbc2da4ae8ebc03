"""`GET /v1/requests/{id}` and its `/usage` with a ledger: the same numbers, for the owner alone."""

import hashlib
from typing import Any

import orjson

from plancha.access import Access
from plancha.ledger import LedgerError
from plancha.testing.embedded import embedded
from plancha.testing.ledger import MemoryLedger
from plancha_text.byte_text import byte_text

OWNER, OTHER, ROOT = "sk-test-a", "sk-test-b", "sk-test-root"
ACCESS = Access(
    keys={
        f"sha256:{hashlib.sha256(key.encode()).hexdigest()}": tenant
        for key, tenant in ((OWNER, "acme"), (OTHER, "other"), (ROOT, "root"))
    },
    anonymous=None,
    operators=frozenset({"root"}),
)


async def get(server: Any, path: str, key: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    async with server.session.get(server.url + path, headers=headers) as response:
        return response.status, orjson.loads(await response.read())


async def test_usage_is_the_same_in_the_answer_afterwards_and_when_only_the_ledger_knows(
    says: Any, listen: Any
) -> None:
    ledger = MemoryLedger()
    async with (
        embedded(says("hello"), byte_text(), ledger=ledger) as kernel,
        listen(kernel.gateway, kernel) as server,
    ):
        kernel.gateway.access = ACCESS
        headers = {"Authorization": f"Bearer {OWNER}", "X-Request-ID": "mine"}
        body = {"prompt": "x" * 33}
        url = server.url + "/v1/completions"
        async with server.session.post(url, json=body, headers=headers) as response:
            answer = orjson.loads(await response.read())
        path = f"/v1/requests/{answer['id']}"
        usage = await get(server, f"{path}/usage", OWNER)
        status = await get(server, path, OWNER)
        told = usage[1]
        assert (told["input_tokens"], told["cached_tokens"], told["output_tokens"]) == (33, 0, 6)
        assert answer["usage"]["prompt_tokens"] == 33
        assert answer["usage"]["completion_tokens"] == 6
        assert (told["status"], told["outcome"]) == ("done", "completed")
        assert told["created"] == answer["created"] <= told["finished"]
        assert status[1]["request_id"] == "mine"

        for _ in range(2):
            for key in (OWNER, ROOT):
                assert await get(server, f"{path}/usage", key) == usage
                assert await get(server, path, key) == status
            unknown = f"/v1/requests/req-{'0' * 32}"
            for ending in ("", "/usage"):
                hidden, absent = path + ending, unknown + ending
                assert await get(server, hidden, OTHER) == await get(server, absent, OTHER)
                assert (await get(server, hidden, OTHER))[0] == 404
            kernel.gateway._records.clear()  # as after a restart, or after 10,000 others

        ledger.trouble = LedgerError("no database")
        failed = await get(server, f"{path}/usage", OWNER)
        assert (failed[0], failed[1]["error"]["code"]) == (503, "ledger_unavailable")
