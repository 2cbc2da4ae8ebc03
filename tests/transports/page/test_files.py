"""The page's files: what is served, with which headers, and that it needs nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

import plancha_transports

FOLDER = Path(plancha_transports.__file__).parent / "page"
FILES = sorted(path.name for path in FOLDER.iterdir())


async def fetch(server: Any, path: str, **headers: str) -> Any:
    async with server.session.get(
        URL(server.url + path, encoded=True), headers=headers
    ) as response:
        await response.read()
        return response


async def test_every_file_is_served_as_what_it_is_and_nothing_may_run_but_it(
    serve: Any, says: Any
) -> None:
    types = {
        "css": "text/css",
        "html": "text/html",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    async with serve(says("Hi")) as server:
        for path in ("/", *(f"/page/{name}" for name in FILES)):
            response = await fetch(server, path)
            assert response.status == 200
            suffix = "html" if path == "/" else path.rpartition(".")[2]
            assert response.headers["Content-Type"] == f"{types[suffix]}; charset=utf-8"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            policy = response.headers["Content-Security-Policy"].split("; ")
            assert "default-src 'none'" in policy
            assert not any("unsafe" in each or "*" in each for each in policy)
            etag = response.headers["ETag"]
            again = await fetch(server, path, **{"If-None-Match": etag})
            assert (again.status, again.headers["ETag"]) == (304, etag)


@pytest.mark.parametrize(
    "name",
    [
        "nothing.js",
        "..%2Fhttp.py",
        "%2e%2e/http.py",
        "..",
        "index.html%00",
        "page%2Fmain.js",
        "%2F",
    ],
)
async def test_there_is_nothing_but_its_files(serve: Any, says: Any, name: str) -> None:
    async with serve(says("Hi")) as server:
        response = await fetch(server, f"/page/{name}")
        assert response.status in (400, 404)
        assert response.content_type == "application/json"


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_no_other_place_and_no_file_that_is_not_there(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    named = re.findall(r'from "\./([^"]+)"', text) + re.findall(
        r'(?:href|src)="page/([^"]+)"', text
    )
    assert set(named) <= set(FILES)
    assert "innerHTML" not in text and "eval(" not in text
    assert len(text.splitlines()) <= 320


def test_no_script_or_style_is_written_into_the_document() -> None:
    html = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)", html) == []
    assert "<style" not in html
    assert re.findall(r"\s(?:style|on[a-z]+)=", html) == []
