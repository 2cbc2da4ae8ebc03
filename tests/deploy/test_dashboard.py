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


def test_an_axis_in_seconds_has_durations_on_it_and_nothing_else() -> None:
    mixed = [
        (panel["title"], target["legendFormat"])
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        if panel.get("fieldConfig", {}).get("defaults", {}).get("unit") == "s"
        for target in panel["targets"]
        if "_seconds" not in target["expr"]
        and target["legendFormat"]
        not in [each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]]
    ]
    assert mixed == []
