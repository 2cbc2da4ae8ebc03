"""A deployment reaches a child process as its parent understood it."""

from pathlib import Path

import pytest

from plancha_app.assembly import choose
from plancha_app.deployment import Deployment
from plancha_app.words import read, written

EVERYTHING = """
[model]
name = "/some/where"
public_prefixes = ["You are"]
[batch]
max_sequences = 3
queue_timeout_s = 0.5
[kv]
block_size = 8
[server]
gateways = 2
anonymous = "light"
[scheduler]
plugin = "priority-preempt"
[allocator]
plugin = "paged"
prefix_cache = false
[executor]
plugin = "torch"
kv_memory = "64 MB"
[transport.front]
plugin = "http"
port = 0
allowed_origins = ["https://chat.example"]
[tenants.light]
retention = "hash"
tier = 1
models = ["where"]
[tenants.heavy]
retention = 30
keys = ["sha256:KEY"]
max_running = 4
tokens_per_minute = 1000
[texts]
path = "texts.db"
secrets = "secrets"
[tiers.1]
ttft_target_s = 2.5
""".replace("KEY", "0" * 64)


@pytest.mark.parametrize("text", ["", EVERYTHING])
def test_a_deployment_is_read_as_it_was_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deployment.toml"
    path.write_text(text)
    _, deployment = choose(path)

    assert isinstance(deployment, Deployment)
    assert read(written(deployment)) == deployment
