"""The blocks of one pool: how many hold each, which are free, and which are cached."""

from collections import OrderedDict
from collections.abc import Iterable


class Blocks:
    """Reference counts, a free list, and an index of full blocks by their content's hash.

    A block is free, used (count above 0) or cached: content that can be found, and no holder. The
    least recently used cached block is given away when no free one is left.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._counts = [0] * total
        self._free = list(range(total))[::-1]
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._by_hash: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        """Blocks with neither holder nor content."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Blocks without a holder whose content can be found."""
        return len(self._cached)

    def cached_blocks(self) -> list[int]:
        """These, the least recently used one first."""
        return list(self._cached)

    @property
    def used(self) -> int:
        """Blocks with a holder."""
        return self.total - len(self._free) - len(self._cached)

    def take(self, blocks: int) -> list[int]:
        """So many blocks with one holder. Raises `IndexError` when they are not free or cached."""
        missing = blocks - len(self._free)
        for _ in range(missing):
            block, _ = self._cached.popitem(last=False)
            del self._by_hash[self._hashes.pop(block)]
            self._free.append(block)
        kept = len(self._free) - blocks
        taken = self._free[kept:][::-1]
        del self._free[kept:]
        for block in taken:
            self._counts[block] = 1
        return taken

    def share(self, block: int) -> None:
        """One more holder of a used or cached block."""
        if self._counts[block] == 0:
            del self._cached[block]
        self._counts[block] += 1

    def drop(self, block: int) -> None:
        """One holder less. Raises `RuntimeError` when the block has none."""
        if self._counts[block] == 0:
            raise RuntimeError(f"block {block} has no holder to give it back")
        self._counts[block] -= 1
        if self._counts[block] == 0:
            if block in self._hashes:
                self._cached[block] = None
            else:
                self._free.append(block)

    def find(self, content: bytes) -> int | None:
        """The block of that hash, used or cached."""
        return self._by_hash.get(content)

    def name(self, blocks: list[int], contents: list[bytes]) -> None:
        """Used blocks can be found by these hashes from now on, unless others already can."""
        by_hash, hashes = self._by_hash, self._hashes
        for block, content in zip(blocks, contents, strict=True):
            if content not in by_hash and block not in hashes:
                by_hash[content] = block
                hashes[block] = content

    def last_holders(self, tables: Iterable[Iterable[int]]) -> int:
        """Blocks that would have no holder left if all of these tables were dropped."""
        held: dict[int, int] = {}
        for table in tables:
            for block in table:
                held[block] = held.get(block, 0) + 1
        return sum(count == self._counts[block] for block, count in held.items())

    def forget(self) -> None:
        """No content can be found any more; cached blocks are free."""
        self._by_hash.clear()
        self._hashes.clear()
        self._free.extend(reversed(self._cached))
        self._cached.clear()
