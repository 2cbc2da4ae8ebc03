"""What is wrong with a table: every mistake by its key's full path, and where a key belongs."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

import attrs


@attrs.frozen(kw_only=True)
class Problem:
    """One mistake. `key` is its full path; `value` is as TOML writes it, None when it is missing.

    `valid` is set when the key itself is unknown: the names that its table has, with what each
    takes. `where` is the beginning of `key` that the caller of `structure` gave.
    """

    key: str
    value: str | None
    right: str
    valid: Mapping[str, str] | None = None
    where: str = ""

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {self.value}"
        return f"{self.key}{value}: {self.right}"

    def moved(self, where: str) -> "Problem":
        """The same in another table."""
        here = attrs.evolve(self, key=self.key.removeprefix(self.where).removeprefix("."))
        return attrs.evolve(under(where, here), where=where)


class OptionsError(Exception):
    """A table that cannot be used; `problems` are all its mistakes, in the order of the table."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def locate(problem: Problem, cls: type, where: str = "") -> Problem:
    """If its key is unknown but belongs into another table of `cls`, say so."""
    if problem.valid is None:
        return problem
    parent, _, name = problem.key.rpartition(".")
    paths = [path.rpartition(".") for path in _paths(cls, where)]
    places = [_table_name(table) for table, _, key in paths if key == name]
    if places:
        right = f"{_table_name(parent)} has no key {name}; it belongs in {' or '.join(places)}"
        return attrs.evolve(problem, right=right)
    near = get_close_matches(name, [key for _, _, key in paths], 1)
    if not near or get_close_matches(name, problem.valid, 1):
        return problem
    place = next(_table_name(table) for table, _, key in paths if key == near[0])
    right = f'{_table_name(parent)} has no such key; did you mean "{near[0]}" in {place}?'
    return attrs.evolve(problem, right=right)


def _paths(cls: type, where: str) -> Iterator[str]:
    for field in attrs.fields(attrs.resolve_types(cls)):
        path = f"{where}.{field.name}" if where else field.name
        yield path
        if isinstance(field.type, type) and attrs.has(field.type) and field.converter is None:
            yield from _paths(field.type, path)


def under(where: str, problem: Problem) -> Problem:
    """The same mistake as its parent sees it."""
    dot = "." if where and problem.key and not problem.key.startswith("[") else ""
    return attrs.evolve(problem, key=f"{where}{dot}{problem.key}")


def _table_name(path: str) -> str:
    return f"[{path}]" if path else "the top level"
