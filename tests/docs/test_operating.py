"""What the page for operators says, held against the code and the files it is about."""

import configparser
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from ledger_places import Place, write_requests
from markdown_pages import ROOT, Page
from plancha.contracts import LoadError
from plancha.metrics.meters import REASONS
from plancha_app.deployment import Server
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.config import ModelConfig
from plancha_engine.kv_pool import blocks_in

PAGE = Page(ROOT / "docs" / "operating.md")
UNIT = ROOT / "deploy" / "plancha.service"
WRITING_S = 40  # what a worker may take to write down what is left, and its parent to see it gone


def rows(heading: str) -> list[list[str]]:
    lines = PAGE.section(heading).splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|") and not line.startswith("| ---")
    ]


def column(number: int) -> dict[str, list[int]]:
    """One model's numbers in the table about memory."""
    found = {row[0].partition(" × ")[0]: row[number] for row in rows("Memory")[1:]}  # noqa: RUF001
    return {
        name: [int(each.replace(",", "")) for each in re.findall(r"[\d,]+", cell)]
        for name, cell in found.items()
    }


@pytest.mark.parametrize("number", [1, 2])
def test_the_arithmetic_of_memory_is_right(number: int) -> None:
    told = column(number)
    layers, kv_heads, head_dim = told["layers"]
    (parameters,) = told["parameters"]
    (block_bytes,) = told["a block of 16 tokens, bytes"]

    assert told["weights, MB"] == [round(parameters * 4 / 1e6)]
    assert told["KV cache of a token, bytes"] == [2 * layers * kv_heads * head_dim * 4]
    assert block_bytes == 16 * told["KV cache of a token, bytes"][0]
    assert told["blocks in 1 GiB"] == [2**30 // block_bytes]
    assert told["tokens in 1 GiB"] == [2**30 // block_bytes * 16]


def test_the_example_beside_it_is_right() -> None:
    (block_bytes,) = column(1)["a block of 16 tokens, bytes"]
    blocks = -(-1000 // 16)
    assert f"{blocks} blocks, {32 * blocks:,} in all" in PAGE.section("Memory")
    assert f"or {32 * blocks * block_bytes / 2**30:.1f} GiB" in PAGE.section("Memory")


@pytest.mark.model
def test_the_engine_counts_blocks_as_the_page_does(model_file: Path) -> None:
    told = column(1)
    config: ModelConfig = open_checkpoint(model_file).config
    shape = told["layers"]
    assert [config.layers, config.kv_heads, config.head_dim] == shape
    assert told["blocks in 1 GiB"] == [blocks_in(2**30, config, 16, torch.float32)]


def test_every_refusal_that_is_counted_is_explained() -> None:
    told = {row[1].strip("`") for row in rows("Overload")[1:]}
    assert told - {"draining"} == REASONS - {"unsupported_parameter"}


def test_every_alert_says_what_to_do() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert [name for name in PAGE.headings() if name.startswith("Plancha")] == alerts
    for name in alerts:
        assert PAGE.section(name)


def test_metrics_that_are_named_are_exported() -> None:
    """A test of theirs holds that table against the code."""
    table = set(Page(ROOT / "docs" / "metrics.md").names())
    named = {name for name in PAGE.names() if name.startswith("plancha_")}
    assert named and named <= table


async def test_a_ledger_is_restored_with_the_anchor_of_its_copy_and_no_other(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    ledger = await place.open()
    await write_requests(ledger, "r1")
    anchor = place.anchor.read_bytes()
    await write_requests(ledger, "r2")  # between the two copies
    copy = tmp_path / "copy.sqlite"
    with closing(sqlite3.connect(place.store)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    await write_requests(ledger, "r3")  # is lost
    await ledger.close()

    copy.rename(place.store)
    with pytest.raises(LoadError, match="remembers"):
        await place.open()
    place.anchor.rename(tmp_path / "evidence")
    place.anchor.write_bytes(anchor)
    ledger = await place.open()
    await write_requests(ledger, "r4")
    await ledger.close()

    assert not place.verify().findings
    assert {row.request for row in place.rows()} == {"r1", "r2", "r4"}


def unit() -> configparser.SectionProxy:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    found.read_string(UNIT.read_text())
    return found["Service"]


def test_a_service_may_take_as_long_to_stop_as_its_server_does() -> None:
    assert int(unit()["TimeoutStopSec"]) >= Server().drain_timeout_s + WRITING_S
    assert unit()["KillMode"] == "mixed"


def test_a_service_reloads_by_the_signal_that_does_it() -> None:
    assert unit()["ExecReload"].endswith("kill -HUP $MAINPID")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a program that is there."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text()))
    done = subprocess.run((analyze, "verify", copy), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
