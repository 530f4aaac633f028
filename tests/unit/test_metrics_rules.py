"""The alert rules and the dashboards: promtool reads them, each rule fires when it should and not
otherwise, and each expression reads metrics that there are."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.metric import Metric
from barnabas.cli.main import main
from barnabas.metrics.alerts import ALERTS
from barnabas.metrics.catalog import SERVERS, known_metrics
from barnabas.metrics.dashboards import DASHBOARDS
from barnabas.metrics.expressions import readings
from barnabas.metrics.rule_file import rules_yaml
from support.alert_cases import CASES, AlertCase

ALL_ALERTS = [alert for group in ALERTS for alert in group.alerts]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of rules and panels, and where it stands."""
    yield from ((alert.expression, alert.name) for alert in ALL_ALERTS)
    for dashboard in DASHBOARDS:
        for row in dashboard.rows:
            for panel in row.panels:
                yield from ((query.expression, f"{dashboard.uid}: {panel.title}") for query in panel.queries)


def promtool(*arguments: str, folder: Path) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outcomes(name: str, case: AlertCase) -> list[dict[str, object]]:
    """The two tests of a rule, as promtool reads them."""
    return [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in inputs.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": case.after,
                    "exp_samples": [{"labels": "{}", "value": 1}] if does_fire else [],
                }
            ],
        }
        for inputs, does_fire in ((case.fires, True), (case.is_quiet, False))
    ]


@pytest.mark.needs("promtool")
def test_promtool_finds_no_fault_in_the_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the command writes them, with the templates of their texts."""
    assert main(["metrics", "rules", str(tmp_path)]) == 0
    (written,) = capsys.readouterr().out.split()
    assert f"SUCCESS: {len(ALL_ALERTS)} rules found" in promtool("check", "rules", written, folder=tmp_path)


@pytest.mark.needs("promtool")
def test_each_rule_fires_when_it_should_and_not_otherwise(tmp_path: Path) -> None:
    """Both for every rule: a new one needs its cases."""
    assert set(CASES) == {alert.name for alert in ALL_ALERTS}
    (tmp_path / "rules.yml").write_text(rules_yaml(ALERTS))
    tests = [each for name, case in CASES.items() for each in outcomes(name, case)]
    (tmp_path / "tests.yml").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in promtool("test", "rules", "tests.yml", folder=tmp_path)


@pytest.mark.needs("promtool")
def test_promtool_reads_the_expressions_of_the_dashboards(tmp_path: Path) -> None:
    """Each as the expression of a rule."""
    rules = [{"record": f"panel_{number}", "expr": each} for number, (each, _) in enumerate(expressions())]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", "panels.yml", folder=tmp_path)


@pytest.mark.parametrize(("expression", "where"), list(expressions()), ids=lambda each: each[:60])
def test_an_expression_reads_metrics_that_there_are_by_labels_that_they_have(expression: str, where: str) -> None:
    """So a metric or a label that gets another name does not leave a panel empty."""
    found = readings(expression, known_metrics())
    assert found, where
    for metric, labels in found:
        allowed = {*metric.labels, *(("quantile",) if metric.kind == "summary" else ())}
        assert labels <= allowed, f"{where}: {metric} has no label {labels - allowed}"


LAG = Metric("lag", "gauge", "", ("group", "topic"))
TIMES = Metric("times", "histogram", "", ("request",))


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("lag", [(LAG, frozenset())]),
        ('sum by (group) (rate(lag{topic=~"a{2}|b"}[5m])) > 1e3', [(LAG, frozenset({"group", "topic"}))]),
        ("histogram_quantile(0.9, sum by (le, request) (rate(times_bucket[5m])))", [(TIMES, frozenset({"request"}))]),
        ('lag{other="x"} unless on(topic) times_count', [(LAG, frozenset({"other", "topic"})), (TIMES, frozenset())]),
    ],
)
def test_the_metrics_of_an_expression_are_found(expression: str, found: list[tuple[Metric, frozenset[str]]]) -> None:
    """With the labels that it selects or groups by; not functions, ranges and texts."""
    assert readings(expression, {"lag": LAG, "times": TIMES}) == found


def test_a_name_that_is_no_metric_is_found() -> None:
    """The check above can fail."""
    with pytest.raises(ValueError, match="times_total is no metric"):
        readings("rate(times_total[5m])", {"times": TIMES})


def test_dashboards_are_files_that_grafana_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its own uid, panels that do not overlap, and expressions for its data source."""
    assert main(["metrics", "dashboards", str(tmp_path)]) == 0
    models = [json.loads(Path(path).read_text()) for path in capsys.readouterr().out.split()]
    assert [each["uid"] for each in models] == [each.uid for each in DASHBOARDS]
    for model in models:
        taken: set[tuple[int, int]] = set()
        assert len({panel["id"] for panel in model["panels"]}) == len(model["panels"])
        for panel in model["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells
            assert panel["type"] == "row" or all(each["expr"] and each["datasource"] for each in panel["targets"])


def test_a_file_that_somebody_changed_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the new one, and said so; the same file again is no news."""
    mine = tmp_path / "barnabas.rules.yml"
    mine.write_text("groups: []\n")
    for warning in ("kept as", ""):
        assert main(["metrics", "rules", str(tmp_path)]) == 0
        assert warning in capsys.readouterr().err
        assert (tmp_path / "barnabas.rules.yml.old").read_text() == "groups: []\n"
        assert "BarnabasBrokerDown" in mine.read_text()
    assert capsys.readouterr().err == ""


def test_the_list_has_every_metric_of_every_server(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs, with kind, labels and help."""
    assert main(["metrics", "list", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["server"], row["name"]) for row in rows] == [
        (server.name, metric.name) for server in SERVERS for metric in server.metrics
    ]
    assert all(row["help"] and row["kind"] in {"counter", "gauge", "histogram", "summary"} for row in rows)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do."""
    (tmp_path / "file").write_text("")
    assert main(["metrics", "rules", str(tmp_path / "file")]) == 1
    assert "file cannot be written: File exists; choose another folder" in capsys.readouterr().err
