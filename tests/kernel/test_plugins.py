import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from plancha.contracts import LoadError, Site
from plancha.options import OptionsError
from plancha.plugins import PluginError, create, find, listing
from plancha.sequence import Sequence
from plancha.testing.executors import chain
from plancha_schedulers.fcfs import Fcfs

SCHEDULERS = "plancha.schedulers"
SITE = Site(
    max_sequences=8,
    max_batched_tokens=64,
    max_waiting=8,
    block_size=16,
    model="smollm2",
    vocabulary=9,
)

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A distribution of its own: `install("dist-name", "module_name", source, plugin="attr")`."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def write(distribution: str, module: str, source: str, **plugins: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{distribution.replace('-', '_')}-1.2.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2.3\n"
        )
        lines = [f"{name} = {module}:{attribute}" for name, attribute in plugins.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{SCHEDULERS}]", *lines]))

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


GOOD = "def make(options, site):\n    return 'made of', dict(options), site.model\n"
BAD = "import a_module_that_nobody_has\n"
UGLY = "def make(options, site):\n    raise RuntimeError('no luck today')\n"


def test_a_plugin_is_found_by_name_and_made_from_its_options(install: Install) -> None:
    install("good-plugin", "good_module", GOOD, good="make")

    assert create(SCHEDULERS, "good", {"a": 1}, SITE) == ("made of", {"a": 1}, "smollm2")


def test_the_built_in_scheduler_comes_through_the_same_door() -> None:
    assert find(SCHEDULERS, "fcfs").__module__ == "plancha_schedulers.fcfs"


def test_a_broken_plugin_that_nobody_named_is_never_imported(install: Install) -> None:
    install("good-plugin", "good_module", GOOD, good="make")
    install("bad-plugin", "bad_module", BAD, bad="make")
    install("ugly-plugin", "ugly_module", UGLY, ugly="make")

    find(SCHEDULERS, "good")

    assert "bad_module" not in sys.modules
    assert "ugly_module" not in sys.modules
    contracts = {plugin.name: plugin.contract for plugin in listing()}
    assert (contracts["good"], contracts["bad"], contracts["ugly"]) == (1, None, None)


def test_listing_tells_where_each_comes_from_and_imports_nothing(install: Install) -> None:
    install("good-plugin", "good_module", GOOD, good="make")

    (good,) = [plugin for plugin in listing() if plugin.name == "good"]

    assert (good.kind, good.distribution, good.version, good.module) == (
        "scheduler",
        "good-plugin",
        "1.2.3",
        "good_module:make",
    )
    assert good.contract is None
    assert "good_module" not in sys.modules


def test_one_that_fails_to_import_names_entry_point_distribution_and_error(
    install: Install,
) -> None:
    install("bad-plugin", "bad_module", BAD, bad="make")

    with pytest.raises(PluginError) as caught:
        find(SCHEDULERS, "bad")

    for part in ("bad_module:make", "bad-plugin", SCHEDULERS, "a_module_that_nobody_has"):
        assert part in str(caught.value)


def test_one_that_leaves_the_interpreter_on_import_is_an_error_too(install: Install) -> None:
    install("exit-plugin", "exit_module", "raise SystemExit(3)", leaving="make")

    with pytest.raises(PluginError, match="SystemExit: 3"):
        find(SCHEDULERS, "leaving")


def test_one_that_raises_when_made_names_entry_point_distribution_and_error(
    install: Install,
) -> None:
    install("ugly-plugin", "ugly_module", UGLY, ugly="make")

    with pytest.raises(PluginError) as caught:
        create(SCHEDULERS, "ugly", {}, SITE)

    for part in ("ugly_module:make", "ugly-plugin", "RuntimeError: no luck today"):
        assert part in str(caught.value)


@pytest.mark.parametrize("error", [OptionsError(()), LoadError("no such model")])
def test_what_a_plugin_says_of_its_options_or_model_passes_through(
    install: Install, error: Exception
) -> None:
    install("said", "said_module", "def make(options, site): raise options['error']", said="make")

    with pytest.raises(type(error)) as caught:
        create(SCHEDULERS, "said", {"error": error}, SITE)

    assert caught.value is error


def test_an_unknown_name_gets_the_nearest_installed_one() -> None:
    with pytest.raises(PluginError, match=r'no plugin "fcsf".*did you mean "fcfs"'):
        find(SCHEDULERS, "fcsf")


def test_a_name_that_two_distributions_claim_is_ambiguous(install: Install) -> None:
    install("one-dist", "one_module", GOOD, mine="make")
    install("two-dist", "two_module", GOOD, mine="make")

    with pytest.raises(PluginError, match="ambiguous") as caught:
        find(SCHEDULERS, "mine")

    assert "one-dist" in str(caught.value)
    assert "two-dist" in str(caught.value)
    assert {"one_module", "two_module"}.isdisjoint(sys.modules)


def test_what_cannot_be_called_is_no_plugin(install: Install) -> None:
    install("thing-dist", "thing_module", "thing = 3", thing="thing")

    with pytest.raises(PluginError, match="is int and cannot be called"):
        find(SCHEDULERS, "thing")


def test_an_attribute_that_is_not_there_is_an_import_that_failed(install: Install) -> None:
    install("gone-dist", "gone_module", "", gone="make")

    with pytest.raises(PluginError, match="cannot be imported: AttributeError"):
        find(SCHEDULERS, "gone")


@pytest.mark.parametrize(
    "source", [f"CONTRACT = 7\n{GOOD}", f"{GOOD}make.CONTRACT = 7\n"], ids=["module", "callable"]
)
def test_a_plugin_of_another_contract_is_refused(install: Install, source: str) -> None:
    install("new-dist", "new_module", source, new="make")

    with pytest.raises(PluginError, match="contract 7; this Plancha has 1"):
        find(SCHEDULERS, "new")


def test_a_plugin_that_raises_at_a_request_fails_that_request_alone(rig: Any) -> None:
    class Picky(Fcfs):
        def add(self, sequence: Sequence, now: float) -> None:
            if sequence.prompt_tokens == 13:
                raise RuntimeError("unlucky")
            super().add(sequence, now)

    simulation = attrs.evolve(rig, scheduler=lambda site: Picky()).chain()

    before = simulation.submit([120] * 20, 5)
    unlucky = simulation.submit([120] * 13, 5)
    after = simulation.submit([120] * 20, 5)
    simulation.run()

    assert simulation.finished[unlucky].reason == "error"
    assert simulation.outputs[unlucky] == []
    assert simulation.outputs[before] == simulation.outputs[after] == chain([120] * 20, 5)
