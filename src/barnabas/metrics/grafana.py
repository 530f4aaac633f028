"""A dashboard as Grafana imports it: JSON, of a version of its model that Grafana 9 and later read.

The data source is a variable, so one file fits every Prometheus.
"""

import json
from collections.abc import Iterator
from typing import Any

from barnabas.metrics.panels import GrafanaDashboard, Panel, Variable

__all__ = ["dashboard_json"]

_SCHEMA_VERSION = 38
_WIDTH = 24
_HEIGHTS = {"timeseries": 8, "stat": 4, "table": 9}
_WIDTHS = {"timeseries": 8, "stat": 4, "table": 24}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_json(dashboard: GrafanaDashboard) -> str:
    """The text of the file."""
    model = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["barnabas", "kafka"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {"type": "dashboards", "title": "Barnabas", "tags": ["barnabas"], "asDropdown": True, "keepTime": True}
        ],
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard)),
    }
    return json.dumps(model, indent=2) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({variable.metric}, {variable.label})", "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(dashboard: GrafanaDashboard) -> Iterator[dict[str, Any]]:
    number = y = 0
    for row in dashboard.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
        }
        y, x, height = y + 1, 0, 0
        for panel in row.panels:
            number += 1
            width = _WIDTHS[panel.kind]
            if x + width > _WIDTH:
                y, x, height = y + height, 0, 0
            yield _panel(number, panel, {"x": x, "y": y, "w": width, "h": _HEIGHTS[panel.kind]})
            x, height = x + width, max(height, _HEIGHTS[panel.kind])
        y += height


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    is_instant = panel.kind != "timeseries"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_thresholds(panel)}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "instant": is_instant,
                "range": not is_instant,
                **({"format": "table"} if panel.kind == "table" else {}),
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def _thresholds(panel: Panel) -> dict[str, Any]:
    if panel.red_above is None and panel.red_below is None:
        return {}
    steps: list[dict[str, Any]] = [{"color": "green" if panel.red_below is None else "red", "value": None}]
    if panel.red_below is not None:
        steps.append({"color": "green", "value": panel.red_below})
    if panel.red_above is not None:
        steps.append({"color": "red", "value": panel.red_above})
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
