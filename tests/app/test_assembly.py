import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from plancha.contracts import Tenant
from plancha_app.assembly import BUILT_IN, make_reload, make_site, prepare
from plancha_app.deployment import Deployment, DeploymentError, Model

Install = Callable[..., None]
Write = Callable[[str], Path]

NO_MODEL = """
from plancha.options import structure
import attrs

@attrs.frozen
class Options:
    memory: int = 1

def make(options, site):
    structure(options, Options, "executor")
"""
GOOD = "def make(options, site):\n    pass\n"
BAD = "import a_module_that_nobody_has\n"
UGLY = "def make(options, site):\n    raise RuntimeError('no luck today')\n"


@pytest.fixture(autouse=True)
def light_executor(install: Install) -> None:
    """So that no test here has to import torch."""
    install("light-executor", "light_executor", NO_MODEL, "plancha.executors", light="make")


def told(path: Path) -> list[str]:
    with pytest.raises(DeploymentError) as caught:
        prepare(path)
    return list(caught.value.problems)


def test_a_right_file_loads_only_what_it_names(install: Install, deployment_file: Write) -> None:
    install("good", "good_module", GOOD, "plancha.schedulers", good="make")
    install("bad", "bad_module", BAD, "plancha.schedulers", bad="make")
    install("ugly", "ugly_module", UGLY, "plancha.schedulers", ugly="make")
    path = deployment_file('executor.plugin = "light"\nscheduler.plugin = "good"\n')

    source, deployment = prepare(path)

    assert source == str(path)
    assert deployment.scheduler.plugin == "good"
    assert "good_module" in sys.modules
    assert {"bad_module", "ugly_module"}.isdisjoint(sys.modules)


def test_broken_plugins_that_are_named_stop_the_start_together(
    install: Install, deployment_file: Write
) -> None:
    install("bad", "bad_module", BAD, "plancha.schedulers", bad="make")
    install("ugly", "ugly_module", UGLY, "plancha.allocators", ugly="make")
    path = deployment_file(
        'executor.plugin = "light"\nscheduler.plugin = "bad"\nallocator.plugin = "ugly"\n'
    )

    bad, ugly = told(path)

    for part in ("scheduler.plugin", "bad_module:make", "distribution bad", "a_module_that_nobody"):
        assert part in bad
    for part in ("allocator.plugin", "ugly_module:make", "distribution ugly", "no luck today"):
        assert part in ugly


def test_the_files_own_mistakes_and_the_plugins_are_told_together(deployment_file: Write) -> None:
    path = deployment_file(
        """
        block_size = 16
        [executor]
        plugin = "light"
        memroy = 3
        max_sequences = 4
        [scheduler]
        plugin = "fcsf"
        [transport.inside]
        plugin = "http"
        port = 70000
        """
    )

    assert told(path) == [
        "block_size = 16: the top level has no key block_size; it belongs in [kv]",
        'scheduler.plugin: no plugin "fcsf" (plancha.schedulers) is installed; '
        'did you mean "fcfs"?',
        'executor.memroy = 3: no such key; did you mean "memory"? It must be a whole number',
        "executor.max_sequences = 4: [executor] has no key max_sequences; it belongs in [batch]",
        "transport.inside.port = 70000: must be a whole number from 0 to 65_535",
    ]


def test_host_and_port_are_checked_like_the_files(deployment_file: Write) -> None:
    path = deployment_file('executor.plugin = "light"\ntransport.inside.plugin = "http"\n')

    with pytest.raises(DeploymentError, match="there is no"):
        prepare(path, port=1)

    path = deployment_file('executor.plugin = "light"\n')
    with pytest.raises(DeploymentError, match=r"transport\.http\.port = 70000"):
        prepare(path, port=70000)


OPEN = "executor.plugin = 'light'\ntransport.http.host = '0.0.0.0'\n"
KEYS = f"tenants.acme = {{ retention = 'none', keys = ['sha256:{'1' * 64}'] }}\n"
GUESTS = "tenants.guests.retention = 'none'\nserver.anonymous = 'guests'\n"


@pytest.mark.parametrize("more", [KEYS, GUESTS])
def test_beyond_loopback_there_are_keys_or_somebody_is_named(
    deployment_file: Write, more: str
) -> None:
    (problem,) = told(deployment_file(OPEN))

    assert problem.startswith("transport.http: others than this machine can reach it")
    assert "plancha keys new" in problem and "anonymous = " in problem
    prepare(deployment_file(OPEN + more))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1"])
def test_on_loopback_nobody_needs_a_key(deployment_file: Write, host: str) -> None:
    prepare(deployment_file(f"executor.plugin = 'light'\ntransport.http.host = '{host}'\n"))


@pytest.mark.parametrize("host", ["", "::", "0.0.0.0", "10.0.0.1", "llm.example", "localhost.evil"])
def test_every_other_address_is_reached_from_elsewhere(deployment_file: Write, host: str) -> None:
    path = deployment_file("executor.plugin = 'light'\n")

    with pytest.raises(DeploymentError, match="nobody needs a key"):
        prepare(path, host=host)


def test_a_transport_that_does_not_say_may_be_reached_by_anybody(
    install: Install, deployment_file: Write
) -> None:
    install("mute", "mute_module", GOOD, "plancha.transports", mute="make")

    (problem,) = told(deployment_file("executor.plugin = 'light'\ntransport.mute = {}\n"))

    assert problem.startswith("transport.mute: ")


def test_a_site_and_a_reload_say_the_same_of_tenants_and_limits(deployment_file: Write) -> None:
    path = deployment_file(
        """
        executor.plugin = "light"
        batch = { max_waiting = 7, queue_timeout_s = 3 }
        tiers = { 0 = { ttft_target_s = 2 }, 1 = {} }
        [tenants.acme]
        retention = "none"
        weight = 2
        tier = 1
        max_running = 4
        max_waiting = 5
        tokens_per_minute = 6
        """
    )
    _, deployment = prepare(path)
    tenants = {"acme": Tenant(weight=2, tier=1, max_running=4, max_waiting=5, tokens_per_minute=6)}
    for said in (make_site(deployment, model="m", vocabulary=1), make_reload(deployment)):
        assert (said.tenants, said.ttft_targets_s) == (tenants, {0: 2.0})
        assert (said.max_waiting, said.queue_timeout_s) == (7, 3.0)


def test_without_a_file_the_folder_is_looked_at_and_then_the_defaults_as_with_a_model_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepare(None) == (BUILT_IN, Deployment())

    Path("plugins.toml").write_text('executor.plugin = "light"\nkv.block_size = 32\n')
    source, deployment = prepare(None)
    assert (source, deployment.kv.block_size) == ("plugins.toml", 32)

    source, deployment = prepare(None, model="hf:Qwen/Qwen3-0.6B")
    assert source == BUILT_IN
    assert deployment == attrs.evolve(Deployment(), model=Model(name="hf:Qwen/Qwen3-0.6B"))
