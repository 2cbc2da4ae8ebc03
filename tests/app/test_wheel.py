"""The wheel, built and installed into an environment that has our dependencies and not us."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    subprocess.run((*PIP, "wheel", *options, str(ROOT)), check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a new environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(folder)), check=True)
    programs = folder / "bin"
    options = ("--python", str(programs / "python"), "install", "--quiet", "--no-deps")
    subprocess.run((*PIP, *options, "--no-index", str(wheel)), check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return programs


def run(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    sources = [
        path.relative_to(root).as_posix()
        for root in (ROOT / "core", ROOT / "schedulers", ROOT / "allocators", ROOT / "transports")
        for path in root.rglob("*.py")
    ]

    assert set(sources) <= set(names)
    page = ROOT / "transports" / "plancha_transports" / "page"
    assert {f"plancha_transports/page/{path.name}" for path in page.iterdir()} <= set(names)
    tops = {name.partition("/")[0] for name in names}
    assert tops == {source.partition("/")[0] for source in sources} | {"plancha-0.1.0.dist-info"}
    assert {f"{top}/py.typed" for top in tops if "." not in top} <= set(names)
    assert "plancha-0.1.0.dist-info/licenses/LICENSE" in names


def test_an_installed_wheel_runs_from_its_own_files(installed: Path, tmp_path: Path) -> None:
    program = "import plancha_app, sys; print(plancha_app.__file__)"
    where = run(installed / "python", "-c", program, cwd=tmp_path)

    assert where.startswith(str(installed.parent))
    assert "Usage: plancha" in run(installed / "plancha", "--help", cwd=tmp_path)


def test_an_installed_wheel_lists_its_plugins(installed: Path, tmp_path: Path) -> None:
    rows = run(installed / "plancha", "plugins", cwd=tmp_path).splitlines()[1:]

    assert [row.split()[:4] for row in rows] == [
        [kind, name, "plancha", "0.1.0"]
        for kind, name in (
            ("scheduler", "fair-queue"),
            ("scheduler", "fcfs"),
            ("scheduler", "priority-preempt"),
            ("allocator", "contiguous"),
            ("allocator", "paged"),
            ("allocator", "paged-swap"),
            ("executor", "torch"),
            ("transport", "http"),
        )
    ]
