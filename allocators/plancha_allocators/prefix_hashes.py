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
    private = PRIVATE + sequence.request.namespace
    parent = hashes[-1] if hashes else b""
    for index in range(len(hashes), blocks):
        start, end = index * block_size, (index + 1) * block_size
        namespace = PUBLIC if end <= sequence.public_tokens else private
        # The separator keeps a namespace that ends like a hash from being another one.
        parent = sha256(
            b"%d:%b%b%b" % (len(namespace), namespace, parent, token_ids[start:end].tobytes())
        ).digest()
        hashes.append(parent)
    return hashes[:blocks]
