"""Pages of Markdown as tests see them: blocks of code, links, headings, names in the text."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Block:
    """A fenced block. What stands behind its language is for tests; no reader sees it:

    `no-run: WHY`, `as: COMMAND` (run instead), `server` (it goes on running), `exit=CODE`,
    `file=NAME` (write it there), `excerpt=PATH` (it stands there in the repository).
    """

    page: Path
    line: int
    language: str
    words: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def unrun(self) -> str | None:
        """Why it is not run."""
        return self._after("no-run: ")

    @property
    def is_typed(self) -> bool:
        """Whether it is for a terminal, and can be run."""
        return self.language == "console" and self.unrun is None

    @property
    def instead(self) -> str | None:
        """What is run in its place."""
        return self._after("as: ")

    @property
    def is_server(self) -> bool:
        return self.words == "server" or self.instead is not None

    @property
    def exit_code(self) -> int:
        return int(self._after("exit=") or 0)

    @property
    def file(self) -> str | None:
        return self._after("file=")

    @property
    def excerpt(self) -> str | None:
        return self._after("excerpt=")

    def _after(self, word: str) -> str | None:
        return self.words.removeprefix(word) if self.words.startswith(word) else None


@attrs.define
class Page:
    """One file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.path.read_text())

    def blocks(self) -> Iterator[Block]:
        for token in self.tokens:
            if token.type in ("fence", "code_block"):
                language, _, words = token.info.partition(" ")
                line = token.map[0] + 1 if token.map else 0
                yield Block(self.path, line, language, words, token.content)

    def links(self) -> Iterator[str]:
        """Where its links and pictures point to."""
        for token in self._inline():
            if token.type in ("link_open", "image"):
                yield str(token.attrGet("href") or token.attrGet("src"))

    def names(self) -> Iterator[str]:
        """What stands in `backquotes`."""
        return (token.content for token in self._inline() if token.type == "code_inline")

    def headings(self) -> list[str]:
        return [
            _plain(inline)
            for opening, inline in zip(self.tokens, self.tokens[1:], strict=False)
            if opening.type == "heading_open"
        ]

    def anchors(self) -> set[str]:
        """Of its headings, as GitHub makes them."""
        seen: Counter[str] = Counter()
        found = set()
        for heading in self.headings():
            slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        return found

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next one of any level."""
        parts = re.split(r"(?m)^#+ ", self.path.read_text())
        (found,) = (part for part in parts if part.partition("\n")[0].strip("` ") == heading)
        return found.partition("\n")[2].strip()

    def _inline(self) -> Iterator[Token]:
        for token in self.tokens:
            yield from token.children or ()


def _plain(inline: Token) -> str:
    return "".join(
        token.content for token in inline.children or () if token.type in ("text", "code_inline")
    )


GUIDES = tuple(map(Page, (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))))
"""Pages for those who use it."""

PAGES = (
    *GUIDES,
    *(Page(ROOT / name) for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/CASES.md")),
    *map(Page, sorted((ROOT / "docs" / "decisions").glob("*.md"))),
)
"""All that point to something in the repository."""
