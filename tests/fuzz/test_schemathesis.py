"""Schemathesis believes every word of /openapi.json, and asks the doors whether it is true.

No answer is a 5xx or undescribed; what breaks the schema is refused; other methods are 405.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from hypothesis import settings

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
KEY = "sk-fuzz"
OPTIONS = [
    "--checks=all",
    # What a schema cannot say is refused too: ids the model does not have, two fields that differ.
    "--exclude-checks=positive_data_acceptance",
    "--request-timeout=60",
    "--output-sanitize=false",
    *(["--max-time=15"] if LONG else ["--generation-deterministic"]),
]


def run(location: str, folder: Path, *options: str) -> None:
    """Raises with all that was found."""
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", location]
    done = subprocess.run(
        [*command, *OPTIONS, *options], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_document_says_is_so(attack: Any, tmp_path: Path) -> None:
    with attack() as server:
        run(
            f"{server.url}/openapi.json", tmp_path, "--phases=coverage,fuzzing", "--max-examples=15"
        )
        server.assert_unharmed()


def test_the_same_with_keys(attack: Any, tmp_path: Path) -> None:
    with attack(keys={KEY: "a"}) as server:
        header = f"--header=Authorization: Bearer {KEY}"
        run(
            f"{server.url}/openapi.json",
            tmp_path,
            "--phases=coverage",
            "--include-method=GET",
            header,
        )
        server.assert_unharmed(KEY)


def test_requests_that_are_answered_are_answered_as_described(attack: Any, tmp_path: Path) -> None:
    """The document narrowed to what this model has, so that most requests get to the engine."""
    with attack() as server:
        with urlopen(f"{server.url}/openapi.json") as response:
            narrowed = narrow(json.load(response))
        file = tmp_path / "narrowed.json"
        file.write_text(json.dumps(narrowed))
        run(
            str(file),
            tmp_path,
            f"--url={server.url}",
            "--phases=fuzzing",
            "--mode=positive",
            "--max-examples=30",
        )
        answered = [line["status"] for line in server.lines() if line.get("method") == "POST"]
        assert answered.count(200) > len(answered) / 4
        server.assert_unharmed()


ID = {"type": "integer", "minimum": 32, "maximum": 126}
NARROWED: dict[str, Any] = {
    "model": {"const": "tiny"},
    "model_id": {"const": "tiny"},
    "max_tokens": {"type": "integer", "minimum": 4, "maximum": 8},
    "min_tokens": {"type": "integer", "minimum": 0, "maximum": 4},
    "stop_token_ids": {"type": "array", "items": ID, "maxItems": 4},
    "logit_bias": {"type": "object", "properties": {"65": {"type": "number", "maximum": 9}}},
    "timeout_s": {"type": "number", "minimum": 60, "maximum": 90},
    "echo": {"type": "boolean"},
}
LEFT_OUT = ("best_of", "max_completion_tokens", "response_format", "stream_options", "top_logprobs")
PROMPTS = {
    "/generate": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 20}]},
    "/v1/completions": {
        "anyOf": [
            {"type": "string", "minLength": 1, "maxLength": 20},
            {"type": "array", "items": ID, "minItems": 1, "maxItems": 20},
        ]
    },
}


def narrow(document: Any) -> Any:
    paths = {
        path: methods
        for path, methods in document["paths"].items()
        if path in ("/generate", "/v1/completions", "/v1/chat/completions")
    }
    for path, methods in paths.items():
        methods["post"]["parameters"] = []
        schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema.pop("anyOf", None)
        properties = schema["properties"]
        for name in LEFT_OUT:
            properties.pop(name, None)
        properties |= {name: each for name, each in NARROWED.items() if name in properties}
        if path in PROMPTS:
            properties["prompt"] = PROMPTS[path]
            schema["required"] = ["prompt"]
        if path == "/generate":
            del properties["messages"]
        if "n" in properties:
            properties["n"] = {"type": "integer", "minimum": 1, "maximum": 4}
    return {**document, "paths": paths}
