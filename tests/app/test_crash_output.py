import subprocess
import sys

import pytest

SCRIPT = """
import logging, resource, sys, threading
from plancha_app.crash_output import keep_content_out
from plancha_app.logs import configure

configure("info", "json")
keep_content_out()
secret = "hunter" + "2"

class Bad:
    def __del__(self):
        raise ValueError(secret)

def fail():
    raise ValueError(secret)

{way}
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
"""


@pytest.mark.parametrize(
    "way",
    [
        "fail()",
        "thread = threading.Thread(target=fail); thread.start(); thread.join()",
        "bad = Bad(); del bad",
        "logging.getLogger('library').error('%d', secret)",
        "sys.stderr.close(); logging.getLogger('library').error('%s', secret)",
        "import asyncio; asyncio.run(asyncio.wait_for(asyncio.to_thread(fail), 9))",
    ],
)
def test_nothing_that_goes_wrong_prints_what_it_was_about(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(way=way)], capture_output=True, text=True
    )

    assert "hunter2" not in done.stdout + done.stderr
    if "stderr.close" not in way and "%d" not in way:
        assert "ValueError" in done.stderr and "uncaught_exception" in done.stderr
    if done.returncode == 0:
        assert "(0, 0)" in done.stdout
