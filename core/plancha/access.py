"""Who may call: from a presented key to its tenant, and which models that tenant may use."""

import re
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

import attrs

from plancha.failure import Failure, RequestFailed

DEFAULT_TENANT = "default"
"""Everybody's, as long as nobody needs a key."""

UNAUTHORIZED = Failure(
    "unauthorized",
    "This server needs an API key, and none that it knows was given. "
    "Send the header Authorization: Bearer YOUR_KEY.",
    None,
    "invalid_api_key",
)
"""Told alike whether the key is missing, malformed or unknown."""


def key_hash(key: bytes) -> str:
    """What is kept of a key: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{sha256(key).hexdigest()}"


def is_key_hash(value: object) -> bool:
    """Whether `value` is written as `key_hash` writes it."""
    return isinstance(value, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", value) is not None


@attrs.frozen(kw_only=True)
class Access:
    """Which key is whose. Replaced as a whole when the operator changes it.

    `keys` are tenants by the hash of the key. One SHA-256 does, unsalted: a key is 32 random bytes,
    so there is nothing to guess it from, and a slow hash would be paid for by every request.
    `anonymous` is the tenant of callers without a key, None if there are none. While there are no
    keys at all, everybody is `anonymous`, whatever they present. `operators` see what is said of
    all tenants together; while there are no keys everybody does.
    """

    keys: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    anonymous: str | None = DEFAULT_TENANT
    models: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)  # by tenant; absent: all
    operators: frozenset[str] = frozenset()
    _digests: tuple[tuple[bytes, str], ...] = attrs.field(init=False, repr=False, eq=False)

    @_digests.default
    def _decoded(self) -> tuple[tuple[bytes, str], ...]:
        return tuple(
            (bytes.fromhex(hashed.partition(":")[2]), tenant)
            for hashed, tenant in self.keys.items()
        )

    def tenant_of(self, key: bytes | None) -> str:
        """The tenant of who presents `key`; None presents nothing, b"" something malformed.

        Raises `RequestFailed` ("unauthorized"). Every known hash is compared, each in constant
        time, so how long it takes says nothing about which of them was close.
        """
        if self.anonymous is not None and (key is None or not self._digests):
            return self.anonymous
        presented = sha256(key or b"").digest()
        found: str | None = None
        for digest, tenant in self._digests:
            if compare_digest(presented, digest):
                found = tenant
        if found is None or not key:
            raise RequestFailed(UNAUTHORIZED)
        return found

    def is_operator(self, tenant: str) -> bool:
        """Whether this tenant may see figures of the whole server."""
        return not self.keys or tenant in self.operators

    def may_use(self, tenant: str, model: str) -> bool:
        """Whether the model exists as far as this tenant is concerned."""
        return model in self.models.get(tenant, (model,))
