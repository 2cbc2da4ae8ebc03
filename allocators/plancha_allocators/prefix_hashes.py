"""What a full block holds, in 32 bytes: a chain of SHA-256 over everything before it."""

from hashlib import sha256

from plancha.messages import Int32s
from plancha.sequence import Sequence

PUBLIC = b"public"
PRIVATE = b"tenant:"


def block_hashes(sequence: Sequence, blocks: int, block_size: int) -> list[bytes]:
    """`sequence.block_hashes`, with those of its first `blocks` full blocks, at least.

    hash(i) = SHA-256(namespace · hash(i - 1) · ids of block i). The namespace is the tenant's (a
    salt narrows it further), so that nobody can find, or time, another's prompts; blocks that lie
    wholly in a prefix declared public are in one that all tenants share.
    """
    hashes = sequence.block_hashes
    if len(hashes) >= blocks:
        return hashes
    public_blocks = min(blocks, sequence.public_tokens // block_size)
    if len(hashes) < public_blocks:
        _chain(hashes, PUBLIC, sequence.token_ids, public_blocks, block_size)
    private = PRIVATE + sequence.request.namespace
    _chain(hashes, private, sequence.token_ids, blocks, block_size)
    return hashes


def _chain(
    hashes: list[bytes], namespace: bytes, token_ids: Int32s, blocks: int, block_size: int
) -> None:
    first, size = len(hashes), token_ids.itemsize * block_size
    ids = token_ids[first * block_size : blocks * block_size].tobytes()
    parent = hashes[-1] if hashes else b""
    # Its length before a namespace keeps one that ends like a hash from being another one.
    namespace = b"%d:%b" % (len(namespace), namespace)
    for start in range(0, len(ids), size):
        parent = sha256(namespace + parent + ids[start : start + size]).digest()
        hashes.append(parent)
