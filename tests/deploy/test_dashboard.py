"""Every query of the dashboard is PromQL, by Prometheus' own word."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "plancha.json"
VARIABLES = {"$__rate_interval": "5m", "$job": "plancha", "$instance": "a"}


def test_every_panels_queries_can_be_parsed(program: Callable[[str], str], tmp_path: Path) -> None:
    queries = [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    for name, value in VARIABLES.items():
        queries = [query.replace(name, value) for query in queries]
    assert len(queries) > 50 and "$" not in "".join(queries)
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries)]
    path = tmp_path / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    found = subprocess.run(
        [program("promtool"), "check", "rules", path], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stdout + found.stderr
