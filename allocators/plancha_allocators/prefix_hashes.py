"""What a full block holds, in 32 bytes: a chain of SHA-256 over everything before it."""

from hashlib import sha256

from plancha.messages import Int32s
from plancha.sequence import Sequence

PUBLIC = b"public"
PRIVATE = b"tenant:"


def extend(sequence: Sequence, token_ids: Int32s, blocks: int, block_size: int) -> list[bytes]:
    """`sequence.block_hashes` for its first `blocks` full blocks, computed where still missing.

    hash(i) = SHA-256(namespace · hash(i - 1) · ids of block i). The namespace is the tenant's (a
    salt narrows it further), so that nobody can find, or time, another's prompts; blocks that lie
    wholly in a prefix declared public are in one that all tenants share.
    """
    hashes = sequence.block_hashes
    if len(hashes) >= blocks:
        return hashes if len(hashes) == blocks else hashes[:blocks]
    # The length before a namespace keeps one that ends like a hash from being another one.
    private = PRIVATE + sequence.request.namespace
    private, public = (b"%d:%b" % (len(each), each) for each in (private, PUBLIC))
    public_blocks = sequence.public_tokens // block_size
    first, size = len(hashes), token_ids.itemsize * block_size
    ids = token_ids[first * block_size : blocks * block_size].tobytes()
    parent = hashes[-1] if hashes else b""
    for index in range(first, blocks):
        namespace = public if index < public_blocks else private
        start = (index - first) * size
        parent = sha256(namespace + parent + ids[start : start + size]).digest()
        hashes.append(parent)
    return hashes
