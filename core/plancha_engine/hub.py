"""Models from the Hugging Face hub: which files make one up, and fetching just those.

`huggingface_hub` does the transfer into its own cache and goes by its own variables, read when it
is imported: HF_ENDPOINT, HF_TOKEN, HF_HOME. A record of ours says which revision was fetched
whole, so that a start needs no network and never serves half a model.
"""

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson
from huggingface_hub import HfApi, constants, errors, hf_hub_download

from plancha.contracts import LoadError
from plancha_engine.hugging_face_config import read_config
from plancha_engine.model_cache import installing, models_folder, put_in_place, sha256_of
from plancha_engine.report import Report
from plancha_engine.safetensors_files import INDEX, SINGLE, index_shards

PREFIX = "hf:"
_ClientError: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
"""What the library's HTTP client raises; which client that is has changed before."""
_SIDE_FILES = (".json", ".jinja")
_PICKLED = (".bin", ".pt", ".pth")


@attrs.frozen
class HubName:
    """`hf:org/name`, `hf:org/name@revision`, `hf:org/name/file.gguf`, or both."""

    repository: str
    file: str | None
    revision: str | None

    @staticmethod
    def parse(name: str) -> "HubName":
        """Raises `LoadError` when `name` is not of that form."""
        spec, _, revision = name.removeprefix(PREFIX).partition("@")
        match spec.split("/", 2):
            case [organisation, repository, *rest] if organisation and repository:
                file = rest[0] if rest else None
                if file is None or file.endswith(".gguf"):
                    return HubName(f"{organisation}/{repository}", file, revision or None)
        raise LoadError(
            f"{name!r} must be hf:organisation/name, with /FILE.gguf and @REVISION if wanted"
        )

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        return f"{PREFIX}{self.repository}{file}{f'@{self.revision}' if self.revision else ''}"

    def key(self) -> str:
        """A file name of its own."""
        return str(self).replace("/", "--").replace(":", "--")


def fetched(name: HubName) -> Path | None:
    """The folder or GGUF file an earlier `fetch` recorded, if every file of it is still whole."""
    try:
        record = orjson.loads((models_folder() / f"{name.key()}.json").read_bytes())
        path = Path(record["path"])
        sizes: Mapping[str, int] = record["files"]
        whole = all(Path(file).stat().st_size == size for file, size in sizes.items())
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    return path if whole else None


def recorded() -> list[HubName]:
    """Everything that `fetch` has recorded, whether or not it is still there."""
    found = []
    for file in models_folder().glob(f"{PREFIX.replace(':', '--')}*.json"):
        try:
            found.append(HubName.parse(orjson.loads(file.read_bytes())["name"]))
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError, LoadError):
            continue
    return found


def fetch(name: HubName, report: Report) -> Path:
    """Bring the model up to the hub's state and record it. A folder, or one GGUF file.

    Raises `LoadError` saying what the hub answered, or what the repository lacks.
    """
    try:
        files = _fetch_files(name, report)
    except (errors.HfHubHTTPError, errors.HFValidationError, _ClientError, OSError) as error:
        raise LoadError(f"{name}: {_reason(error)}") from error
    path = files[0] if files[0].suffix == ".gguf" else files[0].parent
    sizes = {str(file): file.stat().st_size for file in files}
    record = {"name": str(name), "path": str(path), "files": sizes}
    with installing(name.key(), report) as staging:
        (staging / "record").write_bytes(orjson.dumps(record))
        put_in_place(staging / "record", models_folder() / f"{name.key()}.json")
    return path


def _fetch_files(name: HubName, report: Report) -> Sequence[Path]:
    report.say(f"asking {constants.ENDPOINT} for {name}")
    info: Any = HfApi().model_info(name.repository, revision=name.revision, files_metadata=True)
    digests = {sibling.rfilename: _sha256(sibling) for sibling in info.siblings or ()}
    listed = list(digests)

    def download(file: str) -> Path:
        report.say(f"{name}: {file}")
        return _download(name, file, info.sha, digests[file])

    if name.file is not None:
        if name.file not in listed:
            raise LoadError(f"{name}: the repository has no file {name.file}")
        return [download(name.file)]
    at_root = [file for file in listed if "/" not in file]
    if INDEX in at_root:
        weights = sorted(set(index_shards(download(INDEX)).values()))
    elif SINGLE in at_root:
        weights = [SINGLE]
    else:
        weights = [file for file in at_root if file.endswith(".safetensors")]
    if not weights:
        return [download(_only_gguf(name, listed))]
    if missing := [file for file in weights if file not in at_root]:
        raise LoadError(f"{name}: the repository lacks {', '.join(missing)}, named in {INDEX}")
    sides = [download(file) for file in at_root if file.endswith(_SIDE_FILES)]
    if "config.json" not in at_root:
        raise LoadError(f"{name}: the repository has no config.json")
    read_config(sides[0].parent)  # refuse what cannot be served before its weights are fetched
    return [*sides, *(download(file) for file in weights)]


def _sha256(sibling: Any) -> str | None:
    """The hub tells it of large files only."""
    return sibling.lfs.sha256 if sibling.lfs is not None else None


def _download(name: HubName, file: str, commit: str, digest: str | None) -> Path:
    """The library checks a download's size; a wrong byte, new or in its cache, is found here."""
    for again in (False, True):
        fetched_file = hf_hub_download(name.repository, file, revision=commit, force_download=again)
        if digest is None or sha256_of(Path(fetched_file)) == digest:
            return Path(fetched_file)
    raise LoadError(
        f"{name}: {file} arrives damaged (its SHA-256 is not {digest}); try again later"
    )


def _only_gguf(name: HubName, listed: Sequence[str]) -> str:
    files = [file for file in listed if file.endswith(".gguf")]
    if len(files) == 1:
        return files[0]
    if files:
        raise LoadError(
            f"{name}: the repository has {len(files)} GGUF files, name one:"
            f" {PREFIX}{name.repository}/FILE with FILE one of {', '.join(files)}"
        )
    if pickled := [file for file in listed if file.endswith(_PICKLED)]:
        raise LoadError(
            f"{name}: only pickled weights ({pickled[0]}), which can run code when loaded"
        )
    raise LoadError(f"{name}: the repository has no .safetensors and no .gguf file")


def _reason(error: Exception) -> str:
    """What to do about it; never the answer's headers, which can hold a token."""
    hub = constants.ENDPOINT
    match error:
        case errors.GatedRepoError():
            return f"access must be granted on {hub} first, then set HF_TOKEN"
        case errors.RevisionNotFoundError():
            return f"{hub} has no such revision of it"
        case errors.RepositoryNotFoundError():
            return f"{hub} has no such model, or it is private: set HF_TOKEN"
        case errors.HFValidationError():
            return "not a valid organisation/name"
        case errors.HfHubHTTPError():
            return f"{hub} answered {error.response.status_code}; try again later"
        case _ClientError() | errors.LocalEntryNotFoundError() | ConnectionError():
            return f"{hub} could not be reached, or hung up; check the network, or HF_ENDPOINT"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return "the disk is full; make room, or set HF_HOME to a folder that has space"
    return str(error)
