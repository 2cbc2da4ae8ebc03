"""Every built-in allocator keeps the contract, and the suite would notice one that does not."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from plancha.contracts import Allocator, Site
from plancha.sequence import Sequence
from plancha.testing.allocator_conformance import check_allocator
from plancha_allocators.blocks import Blocks
from plancha_allocators.contiguous import contiguous
from plancha_allocators.paged import Paged, paged
from plancha_allocators.paged_swap import paged_swap

Factory = Callable[[Mapping[str, Any], Site], Allocator]


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (contiguous, {}),
        (paged, {}),
        (paged, {"prefix_cache": False}),
        (paged_swap, {}),
        (paged_swap, {"prefix_cache": False}),
    ],
)
def test_the_contract_is_kept(factory: Factory, options: dict[str, Any]) -> None:
    check_allocator(lambda site: factory(options, site))


def faulty(**changes: Callable[..., Any]) -> Callable[[Site], Allocator]:
    """A paged allocator with some of its methods replaced."""

    def make(site: Site) -> Allocator:
        allocator = Paged(site.loaded().blocks, site.block_size)
        for name, method in changes.items():
            setattr(allocator, name, method.__get__(allocator))
        return allocator

    return make


def forks_without_a_copy(self: Paged, parent: Sequence, child: Sequence) -> bool:
    for block in parent.blocks[: (child.prompt_tokens - 1) // self._block_size + 1]:
        self._blocks.share(block)
        child.blocks.append(block)
    return True


def offers_before_it_is_computed(self: Paged, sequence: Sequence) -> int:
    found = Paged.reuse(self, sequence)
    full = sequence.length // self._block_size
    if Paged.grow(self, sequence, full * self._block_size):
        Paged.commit(self, sequence, full * self._block_size)
    return found


def releases_the_first_block_alone(self: Paged, sequence: Sequence) -> None:
    for block in sequence.blocks[:1]:
        self._blocks.drop(block)
    sequence.blocks.clear()


def ignores_the_tenant(self: Paged, sequence: Sequence) -> int:
    blocks: Blocks = self._blocks
    for block in list(blocks._cached)[:1]:
        blocks.share(block)
        sequence.blocks.append(block)
    return len(sequence.blocks) * self._block_size if sequence.length > self._block_size else 0


@pytest.mark.parametrize(
    "changes",
    [
        {"fork": forks_without_a_copy},
        {"reuse": offers_before_it_is_computed},
        {"release": releases_the_first_block_alone},
        {"reuse": ignores_the_tenant},
        {"freeable": lambda self, sequences: 0},
        {"need": lambda self, tokens, sequence=None: 0},
    ],
)
def test_a_broken_allocator_is_found_out(changes: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        check_allocator(faulty(**changes))
