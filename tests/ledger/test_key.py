import stat
from pathlib import Path

import pytest

from plancha.contracts import LoadError
from plancha_ledger.key import read_key, read_or_make_key


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.key"

    key = read_or_make_key(path)

    assert (len(key), path.read_bytes()) == (32, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_or_make_key(path) == key
    assert list(tmp_path.iterdir()) == [path]
    assert read_or_make_key(tmp_path / "other") != key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_could_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ledger.key"
    path.write_bytes(b"k" * 32)
    path.chmod(mode)

    with pytest.raises(LoadError, match=rf"others can read it \(mode {mode:04o}\); `chmod 600"):
        read_key(path)


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.key"
    path.touch(0o600)
    path.write_bytes(b"k" * 31)

    with pytest.raises(LoadError, match="a key of 31 bytes; it must have 32 to 4096"):
        read_key(path)


def test_a_key_that_is_not_there_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"ledger\.key: cannot be read: No such file"):
        read_key(tmp_path / "ledger.key")


def test_a_key_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="the key cannot be made: No such file"):
        read_or_make_key(tmp_path / "no" / "ledger.key")
