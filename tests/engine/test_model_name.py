from pathlib import Path

import pytest

from plancha.contracts import LoadError
from plancha_engine.hub import HubName
from plancha_engine.model_name import pull, resolve
from plancha_engine.report import LineReport

SILENT = LineReport(lambda line: None)


@pytest.mark.parametrize("locate", [resolve, pull])
def test_a_path_stands_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locate: type
) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert locate(str(tmp_path), SILENT) == tmp_path
    assert locate("model.gguf", SILENT) == tmp_path / "model.gguf"
    assert locate("~/model.gguf", SILENT) == tmp_path / "model.gguf"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smolm2", "did you mean 'smollm2'"),
        ("org/name", "is it on the hub. Then say hf:org/name"),
        ("./org/name", "must be a path, hf:organisation/name, or one of: smollm2"),
        ("/no/such.gguf", "must be a path, hf:organisation/name, or one of: smollm2"),
        ("", "must be a path"),
        ("~nobody-of-that-name/m", "must be a path"),
        ("x" * 5000, "must be a path"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(LoadError, match=f"model '{name}': no such file or folder; {hint}"):
        resolve(name, SILENT)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hf:org/name", ("org/name", None, None)),
        ("hf:org/name@v1.0", ("org/name", None, "v1.0")),
        ("hf:org/name/a/b.gguf@refs/pr/1", ("org/name", "a/b.gguf", "refs/pr/1")),
    ],
)
def test_a_hub_name_has_a_repository_and_maybe_a_file_and_a_revision(
    name: str, parts: tuple[str, str | None, str | None]
) -> None:
    parsed = HubName.parse(name)

    assert (parsed.repository, parsed.file, parsed.revision) == parts
    assert str(parsed) == name
    assert "/" not in parsed.key()


@pytest.mark.parametrize("name", ["hf:", "hf:name", "hf:org/", "hf:/name", "hf:org/name/file.bin"])
def test_a_malformed_hub_name_is_refused_with_the_right_form(name: str) -> None:
    with pytest.raises(LoadError, match=f"'{name}' must be hf:organisation/name"):
        resolve(name, SILENT)
