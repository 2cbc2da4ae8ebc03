"""The state every scripted executor keeps, built from nothing but plans."""

from collections import Counter

import attrs

from plancha.plans import Join, Plan


@attrs.define(eq=False)
class Slot:
    """One sequence as an executor sees it: its ids, its block table, how it joined."""

    join: Join
    token_ids: list[int]
    blocks: list[int] = attrs.field(factory=list)


class Slots:
    """Follows the deltas of plans, and refuses a plan that does not follow from the last.

    Raises `AssertionError` naming the plan for: a slot joined twice or left empty twice, a hole in
    a block table, a row that writes a block somebody else holds, a row beyond its table or its
    known tokens.
    """

    def __init__(self) -> None:
        self.by_slot: dict[int, Slot] = {}

    def follow(self, plan: Plan) -> None:
        """Take in one plan's deltas and check its rows."""
        where = f"plan {plan.number}"
        for slot in plan.left.tolist():
            assert self.by_slot.pop(slot, None) is not None, f"{where}: slot {slot} was empty"
        for join in plan.joins:
            assert join.slot not in self.by_slot, f"{where}: slot {join.slot} is taken"
            self.by_slot[join.slot] = Slot(join, join.token_ids.tolist())
        grown = zip(plan.grown_slots, plan.grown_index, plan.grown_blocks, strict=True)
        for slot, index, block in grown:
            table = self.by_slot[int(slot)].blocks
            assert len(table) == index, f"{where}: slot {slot} grows entry {index} of {len(table)}"
            table.append(int(block))

    def check_rows(self, plan: Plan, block_size: int) -> None:
        """Every row computes known tokens into blocks its slot holds, and no slot has two rows."""
        where = f"plan {plan.number}"
        assert len(set(plan.slots.tolist())) == plan.slots.size, f"{where}: a slot has two rows"
        holders = Counter(block for slot in self.by_slot.values() for block in slot.blocks)
        for row, number in enumerate(plan.slots.tolist()):
            slot = self.by_slot[number]
            end = int(plan.starts[row] + plan.counts[row])
            assert plan.counts[row] > 0, f"{where}: slot {number} computes nothing"
            assert end <= len(slot.token_ids), f"{where}: slot {number} computes unknown tokens"
            assert end <= len(slot.blocks) * block_size, f"{where}: slot {number} has no block"
            written = slot.blocks[plan.starts[row] // block_size : -(-end // block_size)]
            shared = [block for block in written if holders[block] > 1]
            assert not shared, f"{where}: slot {number} writes blocks {shared} that others hold"
            sampling = not plan.samples[row] or end == len(slot.token_ids)
            assert sampling, f"{where}: slot {number} samples before its last token"
