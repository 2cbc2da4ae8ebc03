import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plancha_app.cli import main

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A distribution of its own: `install("name", "module", source, group, plugin="attr")`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def write(name: str, module: str, source: str, group: str, **plugins: str) -> None:
        (site / f"{module}.py").write_text(source)
        info = site / f"{name.replace('-', '_')}-1.2.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
        lines = [f"{plugin} = {module}:{attribute}" for plugin, attribute in plugins.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))

    yield write
    written = {path.stem for path in site.glob("*.py")}
    for name in written & set(sys.modules):  # and no other: torch cannot be imported twice
        del sys.modules[name]


@pytest.fixture
def deployment_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a deployment file."""

    def write(text: str) -> Path:
        path = tmp_path / "deployment.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def plancha(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process: exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([*map(str, words)])
        out, err = capsys.readouterr()
        assert left.value.code is None or isinstance(left.value.code, int)
        return left.value.code or 0, out, err

    return run
