import json
import logging
import os
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


def test_a_password_in_a_url_may_hold_an_at_sign() -> None:
    assert hidden("postgres://user:p@ssword@db/plancha") == "postgres://…@db/plancha"


def test_our_lines_and_a_librarys_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")

    structlog.get_logger().info("loaded", seconds=1.5)
    structlog.get_logger().debug("not shown")
    logging.getLogger("library").warning("odd %s", "thing")

    ours, theirs = map(json.loads, capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["seconds"], ours["level"]) == ("loaded", 1.5, "info")
    assert (theirs["event"], theirs["level"]) == ("odd thing", "warning")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_tells_where_and_of_which_class_and_no_value(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    configure("info", form)  # type: ignore[arg-type]

    def answer(prompt: str) -> None:
        try:
            os.environ[prompt]
        except KeyError as error:
            raise ValueError(prompt) from error

    try:
        answer("hunter" + "2")
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed too")

    written = capsys.readouterr().err
    assert "in answer" in written and "ValueError" in written and "KeyError" in written
    assert "hunter2" not in written


def test_asyncio_shows_no_exception_and_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    logger, error = logging.getLogger("asyncio"), RuntimeError("hunter2")

    for message in (
        f"Task exception was never retrieved\nfuture: <Task exception={error!r}>",
        "Exception in callback Protocol.data_received('hunter2')",
    ):
        logger.error(message, exc_info=error)

    written = capsys.readouterr().err
    one, other = (json.loads(line)["event"] for line in written.splitlines())
    assert one == "Task exception was never retrieved"
    assert other == "Exception in callback Protocol.data_received"
    assert "hunter2" not in written
