"""The list of behaviour cases names files that there are."""

import re
from pathlib import Path

TESTS = Path(__file__).parent


def named_files() -> list[tuple[str, Path]]:
    """Case and file; a name without a folder is in the folder named before it in its row."""
    found = []
    for line in (TESTS / "CASES.md").read_text().splitlines():
        if not line.startswith("| O-"):
            continue
        case, folder = line.split("|")[1].strip(), Path()
        for place, name in re.findall(r"(?<!\w)((?:[a-z]+/)*)(test_\w+)", line):
            folder = Path(place) if place else folder
            found.append((case, folder / f"{name}.py"))
    return found


def test_every_test_that_the_cases_name_is_there() -> None:
    named = named_files()
    assert len(named) > 100
    assert not [(case, str(path)) for case, path in named if not (TESTS / path).is_file()]
