import anyio
import pytest

from plancha.contracts import LoadError
from plancha_app.tracebacks import DEEPEST, told

SECRET = "hunter2"


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_cause_and_a_context_are_told_first() -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError:
            raise ValueError(SECRET)  # noqa: B904
    except ValueError as error:
        in_context = told(error)
    caused = ValueError(SECRET)
    caused.__cause__ = raised(KeyError(SECRET))

    for text, between in ((in_context, "During handling"), (told(caused), "direct cause")):
        assert text.index("KeyError") < text.index(between) < text.index("ValueError")
        assert SECRET not in text


async def test_a_group_is_told_with_all_that_is_in_it() -> None:
    async def fail(error: Exception) -> None:
        raise error

    with pytest.raises(BaseExceptionGroup) as caught:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, ValueError(SECRET))
            tasks.start_soon(fail, KeyError(SECRET))
    text = told(caught.value)

    assert "ValueError" in text and "KeyError" in text and "2 of 2:" in text
    assert text.count("in fail") == 2
    assert SECRET not in text


def test_what_the_system_says_and_what_is_for_the_operator_is_said() -> None:
    missing = raised(FileNotFoundError(2, "No such file or directory", SECRET))

    assert told(missing).endswith("FileNotFoundError: No such file or directory")
    assert told(raised(LoadError("shard 2 is missing"))).endswith("LoadError: shard 2 is missing")
    assert told(raised(OSError(SECRET))).endswith("OSError")


def test_a_chain_without_end_comes_to_one() -> None:
    error = ValueError()
    for _ in range(100):
        error, before = ValueError(SECRET), error
        error.__cause__ = before

    assert told(error).count("ValueError") == DEEPEST
