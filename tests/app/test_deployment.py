import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from plancha_app.deployment import (
    Deployment,
    DeploymentError,
    Model,
    PluginTable,
    parse,
    understand,
)
from plancha_app.tenant_tables import TenantTable, TierTable

ROOT_FILE = Path(__file__).parents[2] / "plugins.toml"


def mistakes(tables: Mapping[str, Any]) -> list[str]:
    return [str(problem) for problem in understand(tables)[1]]


def test_without_tables_everything_is_at_its_default() -> None:
    deployment, problems = understand({})

    assert (deployment, problems) == (Deployment(), ())
    assert deployment.scheduler == PluginTable("fair-queue")
    assert deployment.transport == {"http": PluginTable("http")}


def test_the_root_file_says_what_the_defaults_are() -> None:
    deployment, problems = understand(parse(ROOT_FILE))

    assert problems == ()
    assert (deployment.model, deployment.batch) == (Deployment().model, Deployment().batch)
    assert (deployment.kv, deployment.server) == (Deployment().kv, Deployment().server)


def test_what_the_root_file_comments_out_is_valid_and_the_default() -> None:
    uncommented = re.sub(r"(?m)^# (\w+ = )", r"\1", ROOT_FILE.read_text())

    deployment, problems = understand(tomllib.loads(uncommented))

    assert problems == ()
    assert (deployment.batch, deployment.kv) == (Deployment().batch, Deployment().kv)
    assert deployment.server == Deployment().server
    assert deployment.scheduler == Deployment().scheduler
    assert deployment.tenants == {
        "default": TenantTable(
            retention="none",
            max_running=64,
            max_waiting=256,
            tokens_per_minute=100_000,
            models=("smollm2",),
        )
    }
    assert deployment.model == Model(name="smollm2", served_name="smollm2")


def test_a_plugins_table_is_its_own_but_for_the_key_plugin() -> None:
    deployment, problems = understand(
        {
            "scheduler": {"plugin": "mine", "depth": 3, "inner": {"a": 1}},
            "transport": {"http": {"port": 1}, "inside": {"plugin": "http", "port": 2}},
        }
    )

    assert problems == ()
    assert deployment.scheduler == PluginTable("mine", {"depth": 3, "inner": {"a": 1}})
    assert deployment.transport == {
        "http": PluginTable("http", {"port": 1}),
        "inside": PluginTable("http", {"port": 2}),
    }


@pytest.mark.parametrize("value", ["16", 16.0, True, 0, -16, 24])
def test_a_block_size_must_be_a_power_of_two(value: object) -> None:
    (told,) = mistakes({"kv": {"block_size": value}})

    assert told.startswith("kv.block_size = ")
    assert "must be a whole number that is a power of two: 8, 16, 32" in told


def test_every_mistake_is_told_at_once() -> None:
    told = mistakes(
        {
            "block_size": 16,
            "schedular": {},
            "batch": {"max_sequence": 8, "max_waiting": "many"},
            "allocator": {"block_size": 16},
            "transport": {"port": 3, "http": {"plugin": 3}},
        }
    )

    assert told == [
        "block_size = 16: the top level has no key block_size; it belongs in [kv]",
        'schedular: no such table; did you mean "scheduler"? It must be a table',
        'batch.max_sequence = 8: no such key; did you mean "max_sequences"? '
        "It must be a whole number from 1 to 4_096",
        'batch.max_waiting = "many": must be a whole number from 1 to 1_000_000',
        "allocator.plugin: missing; must be text, the name of a plugin",
        "transport.port = 3: must be a table; each transport has its own, such as [transport.http]",
        "transport.http.plugin = 3: must be text, the name of a plugin",
    ]


def test_a_server_without_doors_is_a_mistake() -> None:
    assert mistakes({"transport": {}}) == [
        "transport = {}: must hold one table per transport, such as [transport.http]"
    ]


def test_a_token_budget_has_room_for_every_sequence_and_a_block() -> None:
    tables = {"batch": {"max_sequences": 64, "max_batched_tokens": 79}}

    assert mistakes(tables) == [
        "batch.max_batched_tokens = 79: must be at least batch.max_sequences + kv.block_size = 80"
    ]
    assert mistakes({"batch": {"max_sequences": 64, "max_batched_tokens": 80}}) == []


def test_tables_without_mistakes_survive_those_with_some() -> None:
    deployment, problems = understand({"batch": 3, "scheduler": {"plugin": "mine"}})

    assert len(problems) == 1
    assert deployment.scheduler == PluginTable("mine")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[batch]\nmax_waiting = 3\nmax_waiting = 4\n", r"line 3.*max_waiting"),
        ("[batch]\n[model]\n[batch]\n", r"'batch'.*line 3.*\[batch"),
        ("[batch\n", "line 1"),
        ("a = ", "Invalid value"),
    ],
)
def test_what_is_not_toml_is_told_with_its_line(
    deployment_file: Callable[[str], Path], text: str, told: str
) -> None:
    path = deployment_file(text)

    with pytest.raises(DeploymentError, match=told) as caught:
        parse(path)

    assert caught.value.source == str(path)


def test_a_syntax_error_shows_no_value(deployment_file: Callable[[str], Path]) -> None:
    path = deployment_file('api_key = "hunter2"\napi_key = "hunter2"\n')

    with pytest.raises(DeploymentError, match="api_key") as caught:
        parse(path)

    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")

    for name, told in (
        ("absent.toml", "No such file"),
        ("binary.toml", "UTF-8"),
        ("", "directory"),
    ):
        with pytest.raises(DeploymentError, match=told):
            parse(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("smollm2", "smollm2"),
        ("hf:org/model", "org/model"),
        ("/models/Some-7B", "Some-7B"),
        ("./tiny.gguf", "tiny.gguf"),
    ],
)
def test_clients_see_a_name_and_no_path(name: str, public: str) -> None:
    assert Model(name=name).public_name == public
    assert Model(name=name, served_name="mine").public_name == "mine"


def test_host_and_port_of_the_command_line_go_before_the_files() -> None:
    deployment, _ = understand({"transport": {"http": {"port": 1, "max_body": 5}}})

    options = deployment.listening_at(None, 9).transport["http"].options

    assert options == {"port": 9, "max_body": 5}
    assert deployment.listening_at(None, None) is deployment


def test_a_port_without_an_http_transport_is_a_mistake() -> None:
    deployment, _ = understand({"transport": {"inside": {"plugin": "http"}}})

    with pytest.raises(ValueError, match=r"--port: there is no \[transport.http\]"):
        deployment.listening_at(None, 1)


ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
NOTHING_KEPT = {"retention": "none"}


def test_a_tenant_has_keys_limits_and_models_and_a_tier_its_target() -> None:
    acme = {
        "retention": 30,
        "keys": [ONE, TWO],
        "weight": 2,
        "tier": 1,
        "max_running": 4,
        "max_waiting": 9,
        "tokens_per_minute": 1000,
        "models": ["smollm2"],
    }
    deployment, problems = understand(
        {
            "tenants": {"acme": acme, "beta": NOTHING_KEPT},
            "tiers": {"1": {"ttft_target_s": 2}},
            "texts": {"path": "texts.db"},
        }
    )

    assert problems == ()
    assert deployment.tenants["acme"] == TenantTable(
        retention=30,
        keys=(ONE, TWO),
        weight=2.0,
        tier=1,
        max_running=4,
        max_waiting=9,
        tokens_per_minute=1000,
        models=("smollm2",),
    )
    assert deployment.tenants["beta"].models is None
    assert deployment.tiers == {"1": TierTable(ttft_target_s=2.0)}


def test_what_a_key_may_not_be_is_told_without_showing_it() -> None:
    raw = "pk-hunter2-hunter2-hunter2"
    told = mistakes(
        {
            "tenants": {
                "a": {**NOTHING_KEPT, "keys": [ONE, raw, 3]},
                "b": {**NOTHING_KEPT, "keys": raw},
                "c": {**NOTHING_KEPT, "kyes": [raw]},
                "d": {**NOTHING_KEPT, "key": raw},
                "e": {**NOTHING_KEPT, "keys": {raw: 1}},
            }
        }
    )

    assert [each.partition(" ")[0].rstrip(":") for each in told] == [
        "tenants.a.keys[1]",
        "tenants.a.keys[2]",
        "tenants.b.keys",
        "tenants.c.kyes",
        "tenants.d.key",
        "tenants.e.keys",
    ]
    assert "`plancha keys hash`" in told[0]
    assert "hunter2" not in "".join(told)


@pytest.mark.parametrize(
    "tenants",
    [
        {"a": {**NOTHING_KEPT, "keys": [ONE, ONE]}},
        {"a": {**NOTHING_KEPT, "keys": [ONE]}, "b": {**NOTHING_KEPT, "keys": [TWO, ONE]}},
    ],
)
def test_a_key_given_twice_is_a_mistake_that_names_both_places(tenants: Any) -> None:
    (told,) = mistakes({"tenants": tenants})

    assert "tenants.a.keys[0]" in told
    assert "keys[1]" in told
    assert "1111" not in told


def test_the_anonymous_tenant_must_be_in_the_file() -> None:
    both = {"a": NOTHING_KEPT, "b": NOTHING_KEPT}
    (told,) = mistakes({"server": {"anonymous": "guests"}, "tenants": both})
    (alone,) = mistakes({"server": {"anonymous": "default"}})

    assert told.startswith('server.anonymous = "guests": must be the name of a tenant')
    assert told.endswith("a, b")
    assert "this file has none" in alone
    assert mistakes({"server": {"anonymous": "a"}, "tenants": {"a": NOTHING_KEPT}}) == []


@pytest.mark.parametrize("name", ["", "two words", "a" * 65, "line\n", "a\0b", "ü"])
def test_a_tenants_name_is_one_plain_word(name: str) -> None:
    (told,) = mistakes({"tenants": {name: NOTHING_KEPT}})

    assert "letters, digits" in told


@pytest.mark.parametrize("number", ["gold", "-1", "100", "01", "1.0"])
def test_a_tier_is_a_whole_number(number: str) -> None:
    (told,) = mistakes({"tiers": {number: {}}})

    assert "from 0 to 99" in told


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"tenants": {"a": {**NOTHING_KEPT, "max_waiting": 0}}}, "tenants.a.max_waiting = 0"),
        (
            {"tenants": {"a": {**NOTHING_KEPT, "tokens_per_minute": "9"}}},
            'tenants.a.tokens_per_minute = "9"',
        ),
        ({"tenants": {"a": {**NOTHING_KEPT, "models": "tiny"}}}, 'tenants.a.models = "tiny"'),
        ({"tiers": {"0": {"ttft_target_s": 0}}}, "tiers.0.ttft_target_s = 0"),
        ({"batch": {"queue_timeout_s": -1}}, "batch.queue_timeout_s = -1"),
        ({"server": {"anonymous": 3}}, "server.anonymous = 3"),
    ],
)
def test_limits_are_checked(tables: Any, told: str) -> None:
    (problem,) = mistakes(tables)

    assert problem.startswith(f"{told}: must be ")


def test_access_follows_from_keys_and_from_who_is_anonymous() -> None:
    keyed = {
        "acme": {**NOTHING_KEPT, "keys": [ONE], "models": ["tiny"]},
        "guests": NOTHING_KEPT,
    }
    for tables, anonymous, keys in (
        ({}, "default", {}),
        ({"tenants": {"guests": NOTHING_KEPT}, "server": {"anonymous": "guests"}}, "guests", {}),
        ({"tenants": keyed}, None, {ONE: "acme"}),
        ({"tenants": keyed, "server": {"anonymous": "guests"}}, "guests", {ONE: "acme"}),
    ):
        access = understand(tables)[0].access
        assert (access.anonymous, dict(access.keys)) == (anonymous, keys)
        assert access.models == ({"acme": ("tiny",)} if keys else {})


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, f"[a{'.a' * 5000}]", f"a{'.a' * 5000} = 1"],
    ids=["lists", "header", "key"],
)
def test_a_file_that_is_nested_without_end_is_a_mistake(
    deployment_file: Callable[[str], Path], text: str
) -> None:
    with pytest.raises(DeploymentError, match="nested"):
        parse(deployment_file(text))


RETENTION = 'must be "none" or "hash" or a whole number of days from 1 to 3650'


def test_what_is_kept_of_a_tenants_texts_is_for_the_file_to_say() -> None:
    (told,) = mistakes({"tenants": {"acme": {"weight": 2}}})

    assert told == f"tenants.acme.retention: missing; {RETENTION}"


@pytest.mark.parametrize("given", [0, -1, 3651, 1.5, True, "30", "days", "None", "", [30]])
def test_retention_is_nothing_else(given: Any) -> None:
    (told,) = mistakes({"tenants": {"acme": {"retention": given}}})

    assert told.startswith("tenants.acme.retention = ") and told.endswith(RETENTION)


def test_who_keeps_texts_says_where() -> None:
    tenants: dict[str, Any] = {"a": NOTHING_KEPT, "b": {"retention": 7}, "c": {"retention": "hash"}}
    path = "texts.path: missing; must be a file, such as"
    secrets = "texts.secrets: missing; must be a folder, such as"

    assert mistakes({"tenants": {"a": NOTHING_KEPT}}) == []
    (told,) = mistakes({"tenants": {"b": {"retention": 7}}})
    assert told.startswith(path) and told.endswith("tenants.b.retention = 7 needs it")
    one, other = mistakes({"tenants": tenants})
    assert (one.startswith(path), other.startswith(secrets)) == (True, True)
    assert mistakes({"tenants": tenants, "texts": {"path": "t.db", "secrets": "s"}}) == []


def test_places_of_texts_are_beside_the_file() -> None:
    texts = {"path": "texts.db", "secrets": "/var/lib/plancha"}
    deployment = understand({"texts": texts})[0].beside(Path("/etc/plancha"))

    assert deployment.texts.path == Path("/etc/plancha/texts.db")
    assert deployment.texts.secrets == Path("/var/lib/plancha")
