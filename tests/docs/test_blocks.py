"""Blocks of code in the pages are what they claim to be."""

import tomllib

import pytest

from markdown_pages import GUIDES, ROOT, Block
from plancha_app.assembly import plugin_problems
from plancha_app.deployment import understand

BLOCKS = [block for page in GUIDES for block in page.blocks()]
LANGUAGES = {"console", "python", "toml", "text"}
MOST_UNRUN = 5

HASH = "sha256:" + "0" * 63


def those(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_it_is_in(block: Block) -> None:
    assert block.language in LANGUAGES
    if block.language == "text":
        assert not block.text.startswith("$ "), "commands are in a `console`"


@pytest.mark.parametrize("block", those("console"), ids=str)
def test_a_terminal_begins_with_a_prompt(block: Block) -> None:
    assert block.text.startswith("$ ")


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.excerpt], ids=str)
def test_an_excerpt_stands_where_it_is_taken_from(block: Block) -> None:
    assert block.text in (ROOT / str(block.excerpt)).read_text()


@pytest.mark.parametrize("block", those("toml"), ids=str)
def test_a_deployment_is_right(block: Block) -> None:
    """With a hash for each that the page leaves out."""
    text = block.text
    for number in range(10):
        text = text.replace("sha256:…", f"{HASH}{number}", 1)
    tables = tomllib.loads(text)
    if block.excerpt is None:
        deployment, problems = understand(tables)
        assert [str(problem) for problem in problems] == []
        others = {"shortest_first", "whole_answer"}
        told = list(plugin_problems(deployment))
        assert [each for each in told if not any(name in each for name in others)] == []


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    unrun = {str(block): block.unrun for block in BLOCKS if block.unrun is not None}
    print(*(f"{place}: {why}" for place, why in unrun.items()), sep="\n")
    assert all(unrun.values())
    assert len(unrun) <= MOST_UNRUN, unrun
