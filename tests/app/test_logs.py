import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from plancha_app.logs import configure, hidden


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:], logging.root.level = handlers, level


def test_no_secret_of_a_configuration_is_logged() -> None:
    tables = {
        "transport": {"http": {"port": 1, "api_keys": ["hunter2"], "tls": {"password": "hunter2"}}},
        "ledger": {"url": "postgres://user:hunter2@db/plancha", "token": {"a": "hunter2"}},
        "batch": {"max_batched_tokens": 256},
    }

    shown = hidden(tables)

    assert "hunter2" not in str(shown)
    assert shown["transport"]["http"]["port"] == 1
    assert shown["ledger"]["url"] == "postgres://…@db/plancha"
    assert shown["batch"] == {"max_batched_tokens": 256}


def test_our_lines_and_a_librarys_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")

    structlog.get_logger().info("loaded", seconds=1.5)
    structlog.get_logger().debug("not shown")
    logging.getLogger("library").warning("odd %s", "thing")

    ours, theirs = map(json.loads, capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["seconds"], ours["level"]) == ("loaded", 1.5, "info")
    assert (theirs["event"], theirs["level"]) == ("odd thing", "warning")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_comes_without_the_values_of_variables(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    configure("info", form)  # type: ignore[arg-type]

    def answer(prompt: str) -> None:
        raise RuntimeError("a fault")

    try:
        answer("hunter" + "2")
    except RuntimeError:
        structlog.get_logger().exception("failed")

    written = capsys.readouterr().err
    assert "RuntimeError: a fault" in written
    assert "hunter2" not in written
