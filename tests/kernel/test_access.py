"""From keys to tenants. Hashes are those of hashlib, written out by the test."""

import hashlib
import hmac

import pytest

from plancha.access import UNAUTHORIZED, Access, is_key_hash, key_hash
from plancha.failure import RequestFailed

OLD, NEW, OTHER = b"pk-old", b"pk-new", b"pk-other"


def sha(key: bytes) -> str:
    return "sha256:" + hashlib.sha256(key).hexdigest()


def access(anonymous: str | None = None) -> Access:
    keys = {sha(OLD): "acme", sha(NEW): "acme", sha(OTHER): "beta"}
    return Access(keys=keys, anonymous=anonymous)


def refused(access: Access, key: bytes | None) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        access.tenant_of(key)
    return caught.value


def test_a_hash_is_the_sha256_of_the_keys_bytes() -> None:
    # The digest of "abc" as FIPS 180-4 gives it.
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    assert key_hash(b"abc") == f"sha256:{abc}"


@pytest.mark.parametrize(
    "value", ["", "pk-old", "sha256:" + "a" * 63, "sha256:" + "G" * 64, "a" * 64, 3, None, b"x"]
)
def test_what_is_no_hash_is_told_apart(value: object) -> None:
    assert not is_key_hash(value)
    assert is_key_hash(sha(OLD))


def test_each_of_a_tenants_keys_is_its_own() -> None:
    assert [access().tenant_of(key) for key in (OLD, NEW, OTHER)] == ["acme", "acme", "beta"]


@pytest.mark.parametrize(
    "key", [None, b"", b"pk-ol", b"pk-old ", b"PK-OLD", b"pk-\xfcber", b"\x00", b"x" * 4096]
)
def test_every_other_key_is_refused_in_the_same_words(key: bytes | None) -> None:
    failure = refused(access(), key).failure

    assert failure is UNAUTHORIZED
    assert (failure.kind, failure.code) == ("unauthorized", "invalid_api_key")


def test_the_anonymous_have_a_tenant_where_it_is_named_but_a_wrong_key_has_none() -> None:
    guests = access(anonymous="guests")

    assert guests.tenant_of(None) == "guests"
    assert guests.tenant_of(OLD) == "acme"
    for key in (b"", b"wrong"):
        refused(guests, key)


def test_without_any_keys_everybody_is_the_same_whatever_they_present() -> None:
    for key in (None, b"", b"anything"):
        assert Access().tenant_of(key) == "default"
        assert Access(anonymous="guests").tenant_of(key) == "guests"


def test_the_hash_of_nothing_opens_nothing() -> None:
    refused(Access(keys={sha(b""): "acme"}, anonymous=None), b"")


def test_every_hash_is_compared_wherever_the_right_one_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("plancha.access.compare_digest", compare)
    everyone = [hashlib.sha256(key).digest() for key in (OLD, NEW, OTHER)]
    for key in (OLD, OTHER):
        compared.clear()
        access().tenant_of(key)
        assert compared == everyone
    compared.clear()
    refused(access(), b"wrong")
    assert compared == everyone


def test_nothing_shows_hashes() -> None:
    assert sha(OLD) not in repr(access()) and sha(OLD)[7:] not in str(access())


def test_models_are_all_unless_they_are_named() -> None:
    some = Access(models={"acme": ("tiny", "large"), "none": ()})

    assert some.may_use("beta", "tiny")
    assert some.may_use("acme", "tiny")
    assert not some.may_use("acme", "small")
    assert not some.may_use("none", "tiny")
