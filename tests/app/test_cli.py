import asyncio
import base64
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from plancha_app.deployment import parse, understand

Install = Callable[..., None]
Write = Callable[[str], Path]

LIGHT = "def make(options, site):\n    pass\n"
BAD = "import a_module_that_nobody_has\n"


@pytest.fixture
def light_executor(install: Install) -> None:
    install("light-executor", "light_executor", LIGHT, "plancha.executors", light="make")


Plancha = Callable[..., tuple[int, str, str]]


@pytest.mark.usefixtures("light_executor")
def test_check_says_that_a_right_file_is_right(plancha: Plancha, deployment_file: Write) -> None:
    path = deployment_file('executor.plugin = "light"\n')

    assert plancha("check", path) == (0, f"{path}: right\n", "")


def test_check_lists_every_mistake_and_leaves_with_2(
    plancha: Plancha, deployment_file: Write
) -> None:
    path = deployment_file('[schedular]\n[kv]\nblock_size = "16"\n[executor]\nplugin = "tocrh"\n')

    code, out, err = plancha("check", path)

    assert (code, out) == (2, "")
    first, *others = err.splitlines()
    assert first == f"{path}: 3 mistakes"
    assert [line.split()[0] for line in others] == [
        "schedular:",
        "kv.block_size",
        "executor.plugin:",
    ]


@pytest.mark.parametrize("name", ["smollm2", "hf:Qwen/Qwen3-0.6B", "there.gguf", "folder"])
def test_a_model_in_a_files_place_is_told_how_it_is_served(
    plancha: Plancha, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    (tmp_path / "folder").mkdir()

    code, _, err = plancha("serve", name)

    assert code == 2
    assert f"--model {name}" in " ".join(err.split())


def test_a_model_and_a_file_are_not_both_served(plancha: Plancha, tmp_path: Path) -> None:
    code, _, err = plancha("serve", str(tmp_path / "a.toml"), "--model", "smollm2")

    assert code == 2
    assert "--model is for a server without a file" in err


@pytest.mark.parametrize("command", ["check", "serve", "plugins"])
def test_a_file_that_is_not_there_is_one_mistake(plancha: Plancha, command: str) -> None:
    code, _, err = plancha(command, "absent.toml")

    assert code == 2
    assert err == "absent.toml: 1 mistake\n  cannot be read: No such file or directory\n"


@pytest.mark.usefixtures("light_executor")
def test_plugins_are_listed_and_only_named_ones_loaded(
    plancha: Plancha, install: Install, deployment_file: Write
) -> None:
    install("bad", "bad_module", BAD, "plancha.schedulers", bad="make")
    path = deployment_file('executor.plugin = "light"\n')

    code, out, _ = plancha("plugins", path)

    rows = {line.split()[1]: re.split(r"  +", line) for line in out.splitlines()}
    assert code == 0
    assert rows["NAME"] == ["KIND", "NAME", "DISTRIBUTION", "VERSION", "CONTRACT", "MODULE"]
    assert rows["bad"] == [
        "scheduler", "bad", "bad", "1.2.3", "not loaded", "bad_module:make",
    ]  # fmt: skip
    assert rows["light"][4] == "1"
    assert rows["fair-queue"][2:] == [
        "plancha", "0.1.0", "1", "plancha_schedulers.fair_queue:fair_queue",
    ]  # fmt: skip
    assert "bad_module" not in sys.modules


@pytest.mark.usefixtures("light_executor")
def test_a_named_plugin_that_fails_is_listed_with_its_reason(
    plancha: Plancha, install: Install, deployment_file: Write
) -> None:
    install("bad", "bad_module", BAD, "plancha.schedulers", bad="make")
    path = deployment_file('executor.plugin = "light"\nscheduler.plugin = "bad"\n')

    code, out, _ = plancha("plugins", path)

    assert code == 1
    assert "ModuleNotFoundError: No module named 'a_module_that_nobody_has'" in out


def test_a_model_that_nobody_knows_is_one_line(plancha: Plancha) -> None:
    code, _, err = plancha("pull", "smolm2")

    assert code == 1
    assert err.count("\n") == 1
    assert "smollm2" in err


@pytest.mark.parametrize(
    "words",
    [("bench", "http://x", "--requests", "0"), ("serv",), ("bench",), ("serve", "--port", "x")],
)
def test_a_mistyped_command_is_told_and_leaves_with_2(
    plancha: Plancha, words: tuple[str, ...]
) -> None:
    code, out, err = plancha(*words)

    assert code == 2
    assert "Error" in out + err
    assert "Traceback" not in out + err


@pytest.mark.usefixtures("light_executor")
def test_check_can_be_read_by_a_program(plancha: Plancha, deployment_file: Write) -> None:
    path = deployment_file('executor.plugin = "light"\n')
    assert json.loads(plancha("check", path, "--json")[1]) == {
        "source": str(path), "right": True, "mistakes": [],
    }  # fmt: skip

    path.write_text("[schedular]\n")
    code, out, err = plancha("check", path, "--json")

    assert (code, err) == (2, "")
    told = json.loads(out)
    assert (told["right"], len(told["mistakes"])) == (False, 1)
    assert told["mistakes"][0].startswith("schedular:")


@pytest.mark.usefixtures("light_executor")
def test_plugins_can_be_read_by_a_program(
    plancha: Plancha, install: Install, deployment_file: Write
) -> None:
    install("bad", "bad_module", BAD, "plancha.schedulers", bad="make")
    path = deployment_file('executor.plugin = "light"\nscheduler.plugin = "bad"\n')

    code, out, _ = plancha("plugins", path, "--json")

    told = json.loads(out)
    assert code == 1
    (light,) = [each for each in told["plugins"] if each["name"] == "light"]
    assert (light["kind"], light["version"], light["contract"]) == ("executor", "1.2.3", 1)
    assert "a_module_that_nobody_has" in told["failures"][0]


def test_a_new_key_can_be_read_by_a_program(plancha: Plancha) -> None:
    told = json.loads(plancha("keys", "new", "acme", "--json")[1])

    assert told["tenant"] == "acme"
    assert told["hash"] == "sha256:" + hashlib.sha256(told["key"].encode()).hexdigest()


async def _stream(url: str, number: int) -> list[str]:
    body = {"prompt": f"{number} apples and", "max_tokens": 8, "temperature": 0, "stream": True}
    async with aiohttp.request("POST", f"{url}/v1/completions", json=body) as response:
        assert response.status == 200
        lines = (await response.text()).splitlines()
    return [line.removeprefix("data: ") for line in lines if line]


@pytest.mark.model
@pytest.mark.usefixtures("model_file")
async def test_the_server_process_streams_to_several_and_leaves_with_0(
    deployment_file: Write,
) -> None:
    path = deployment_file(
        "[executor]\nplugin = 'torch'\nkv_memory = '64MiB'\n[transport.http]\nport = 0\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plancha_app", "serve", str(path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    greeting = (await process.stdout.readline()).decode()
    url = re.search(r"http://\S+", greeting)
    assert url is not None, (await process.communicate())[1].decode()

    answers = await asyncio.gather(*(_stream(url[0], number) for number in range(3)))
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()

    assert process.returncode == 0
    for *events, done in answers:
        usage = [json.loads(event) for event in events]
        assert done == "[DONE]"
        assert "".join(choice["text"] for event in usage for choice in event["choices"])
    assert all(json.loads(line) for line in err.decode().splitlines())
    assert "apples" not in err.decode()


def typed(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


@pytest.mark.parametrize("name", ["acme", "acme.example", "-1"])
def test_a_new_key_is_shown_once_with_the_line_that_lets_it_in(
    plancha: Plancha, deployment_file: Write, name: str
) -> None:
    code, out, err = plancha("keys", "new", "--", name)

    (key,) = re.findall(r"^ +(pk-\S+)$", out, re.MULTILINE)
    encoded = key.removeprefix("pk-")
    assert len(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))) >= 32
    deployment, problems = understand(parse(deployment_file(out[out.index("[tenants") :])))
    assert (code, err, problems) == (0, "", ())
    assert deployment.tenants[name].retention == "none"
    assert deployment.tenants[name].keys == ("sha256:" + hashlib.sha256(key.encode()).hexdigest(),)
    assert key not in plancha("keys", "new", "--", name)[1]


def test_a_key_without_a_name_gets_no_table(plancha: Plancha) -> None:
    code, out, _ = plancha("keys", "new")

    assert code == 0
    assert "[tenants" not in out and 'keys = ["sha256:' in out


def test_a_key_for_a_name_that_no_tenant_can_have_is_not_made(plancha: Plancha) -> None:
    code, out, err = plancha("keys", "new", "two words")

    assert (code, out) == (2, "")
    assert "'two words'" in err and "letters, digits" in err


@pytest.mark.parametrize("raw", [b"pk-abc", b"pk-abc\n", b"pk-abc\r\n"])
def test_a_keys_hash_comes_from_stdin(
    plancha: Plancha, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    typed(monkeypatch, raw)

    assert plancha("keys", "hash") == (
        0,
        f"sha256:{hashlib.sha256(b'pk-abc').hexdigest()}\n",
        "",
    )


@pytest.mark.parametrize("raw", [b"", b"\n", b"two words", b"pk-a\npk-b\n", b"x" * 4097])
def test_what_is_no_single_word_has_no_hash(
    plancha: Plancha, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    typed(monkeypatch, raw)
    code, out, err = plancha("keys", "hash")

    assert (code, out) == (2, "")
    assert "one word" in err and "pk-a" not in err


def test_a_key_is_never_an_argument(plancha: Plancha) -> None:
    assert plancha("keys", "hash", "pk-abc")[0] == 2
