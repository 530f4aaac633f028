"""Charts over a result: which are drawn, their data, and the same figures in
Prometheus's text form. No I/O.

A chart is a query in SQL over the table ``results``, or the result as it is; ``x`` is a column,
each of ``y`` a figure, and ``color`` cuts a figure into one series for each of its values.
"""

import decimal
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from barnabas.base.metric import Metric
from barnabas.net.prometheus import label, labels_of
from barnabas.pipelines.progress.metric_names import FlowMetrics
from barnabas.pipelines.specification.charts import Chart
from barnabas.pipelines.specification.spec import Flow
from barnabas.pipelines.values.arrow_values import shown_values

__all__ = ["ChartError", "Series", "default_charts", "draw_chart", "metrics_text", "run_metrics_text", "series_of"]

_LOST = "lost"
_FAILED = frozenset(("failed", _LOST))
"""How runs end that failed; one without an end was killed."""
_MAX_SERIES = 30
_MAX_POINTS = 5_000
_EXACT = 2**53
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class ChartError(ValueError):
    """A chart does not fit the result."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one set of bars."""

    figure: str
    group: str | None
    x: list[Any]
    y: list[float | None]


def default_charts(flow: Flow) -> tuple[Chart, ...]:
    """Charts for a flow that declares none: each figure over time or by group; rows over
    time if there is a time."""
    how = flow.aggregate
    if how is None:
        return (Chart("Rows", "table", "", ()),)
    groups: tuple[str | None, ...] = (*how.group_by, None, None)
    if how.window:
        return tuple(Chart(figure, "line", "window_start", (figure,), groups[0]) for figure in how.compute)
    return tuple(Chart(figure, "bar", how.group_by[0], (figure,), groups[1]) for figure in how.compute)


def series_of(chart: Chart, rows: pa.Table) -> list[Series]:
    """The chart's data, in the order of x; of many groups those with the largest sums."""
    for name in (chart.x, *chart.y, *([chart.color] if chart.color else [])):
        if name not in rows.column_names:
            raise ChartError(f"there is no column {name}; there are {', '.join(rows.column_names)}")
    xs = list(map(_plain, shown_values(rows[chart.x])))
    groups = shown_values(rows[chart.color]) if chart.color else [None] * len(xs)
    found: list[Series] = []
    for figure in chart.y:
        points: dict[Any, list[tuple[Any, float | None]]] = {}
        for x, group, value in zip(xs, groups, shown_values(rows[figure]), strict=True):
            if x is not None:
                points.setdefault(group, []).append((x, _number(figure, value)))
        ranked: list[Any] = sorted(points, key=lambda group: (-_total(points[group]), str(group)))[:_MAX_SERIES]
        for group in sorted(ranked, key=str):
            series = points[group][-_MAX_POINTS:]
            if chart.type == "line":
                series.sort(key=lambda point: point[0])
            group_name = None if not chart.color else "none" if group is None else str(group)
            found.append(Series(figure, group_name, [x for x, _ in series], [y for _, y in series]))
    return found


def draw_chart(chart: Chart, rows: pa.Table) -> dict[str, Any]:
    """The chart as a figure of Plotly's, in JSON's types."""
    import plotly.graph_objects as go

    figure = go.Figure()
    if chart.type == "table":
        last = rows.slice(max(0, rows.num_rows - 20))
        cells = [[_cell(value) for value in shown_values(column)[::-1]] for column in last.columns]
        names = list(map(_escaped, rows.column_names))
        figure.add_trace(go.Table(header={"values": names}, cells={"values": cells}))
    else:
        for series in series_of(chart, rows):
            parts = [part for part in (series.group, series.figure if len(chart.y) > 1 else None) if part is not None]
            name = _escaped(", ".join(parts) or series.figure)
            x = list(map(_escaped, series.x))
            if chart.type == "line":
                figure.add_trace(go.Scatter(x=x, y=series.y, name=name, mode="lines+markers"))
            else:
                figure.add_trace(go.Bar(x=x, y=series.y, name=name))
        figure.update_layout(xaxis_title=_escaped(chart.x), yaxis_title=_escaped(", ".join(chart.y)))
        figure.update_xaxes(type=_axis_type(rows[chart.x]))
    figure.update_layout(title=_escaped(chart.title), uirevision="kept", margin={"t": 60, "r": 20})
    drawn: dict[str, Any] = _without_tuples(figure.to_plotly_json())
    return drawn


def metrics_text(flow: str, charts: Sequence[tuple[Chart, list[Series]]], problems: int) -> str:
    """The charts' figures as gauges: bars each by its x, of lines the last point."""
    lines = [
        "# HELP barnabas_pipeline_result A figure of a chart over the flow's results.",
        "# TYPE barnabas_pipeline_result gauge",
    ]
    for chart, all_series in charts:
        for series in all_series:
            labels = {"flow": flow, "chart": chart.title, "figure": series.figure}
            if chart.color and series.group is not None:
                labels[chart.color] = series.group
            points = list(zip(series.x, series.y, strict=True))
            if chart.type == "line":
                points = [point for point in points if point[1] is not None][-1:]
            for x, y in points:
                if y is not None:
                    own = labels if chart.type == "line" else {**labels, chart.x: str(x)}
                    lines.append(f"barnabas_pipeline_result{_labels(own)} {repr(float(y)).removesuffix('.0')}")
    lines += [
        "# HELP barnabas_pipeline_chart_problems Charts that could not be drawn.",
        "# TYPE barnabas_pipeline_chart_problems gauge",
        f"barnabas_pipeline_chart_problems{_labels({'flow': flow})} {problems}",
    ]
    return "\n".join(lines) + "\n"


def run_metrics_text(flow: str, run: Mapping[str, Any], *, is_running: bool = False) -> str:
    """Figures of the flow's last run, the one that goes on or the one before, as gauges.

    Empty before the first run."""
    if not run:
        return ""
    has_failed = not is_running and run.get("status", _LOST) in _FAILED
    figures: list[tuple[Metric, list[tuple[tuple[str, ...], Any]]]] = [
        (FlowMetrics.RUNNING, [((), int(is_running))]),
        (FlowMetrics.FAILED, [((), int(has_failed))]),
        (FlowMetrics.ROWS, [((), run.get("rows"))]),
        (FlowMetrics.BAD_ROWS, [((), run.get("bad_rows"))]),
        (FlowMetrics.BAD_ROWS_BY_KIND, _by_name(run.get("bad"))),
        (
            FlowMetrics.TABLE_BAD_ROWS,
            [((name,), counts["bad_rows"]) for name, counts in run.get("tables", {}).items()],
        ),
        (FlowMetrics.LATE_ROWS, [((), run.get("late_rows"))]),
        (FlowMetrics.TIMELESS_ROWS, [((), run.get("timeless_rows"))]),
        (FlowMetrics.LOST_RECORDS, [((), run.get("lost_records"))]),
        (FlowMetrics.QUARANTINED_ROWS, [((), run.get("quarantined_rows"))]),
        (FlowMetrics.LAG, [((), run.get("lag"))]),
        (FlowMetrics.CATCH_UP, [((), run.get("catch_up_s"))]),
        (FlowMetrics.UNMET_ROWS, _by_name(run.get("expectations"))),
        (FlowMetrics.BATCHES, [((), run.get("batches"))]),
        (FlowMetrics.BATCH_SECONDS, [((), run.get("batch_s"))]),
        (FlowMetrics.LAST_SUCCESS, [((), run.get("last_success_s"))]),
    ]
    lines: list[str] = []
    for metric, samples in figures:
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines += [f"# HELP {metric} {metric.help_text}", f"# TYPE {metric} {metric.kind}"]
            lines += [f"{metric}{labels_of(metric, flow, *labels)} {value}" for labels, value in known]
    return "".join(f"{line}\n" for line in lines)


def _by_name(counts: Mapping[str, int] | None) -> list[tuple[tuple[str, ...], Any]]:
    return [((name,), count) for name, count in (counts or {}).items()]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(label(name, text) for name, text in labels.items()) + "}"


def _number(figure: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    except (TypeError, ValueError) as error:
        raise ChartError(f"{figure} is {value!r}, which is no number") from error
    return number if math.isfinite(number) else None


def _total(points: Sequence[tuple[Any, float | None]]) -> float:
    return sum(abs(y) for _, y in points if y is not None)


def _plain(value: Any) -> Any:
    """The value as JSON has it: no number that JSON lacks, and a text for anything
    but texts and numbers."""
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _cell(value: Any) -> Any:
    """The value in a table: decimals and large whole numbers as texts, because numbers of
    JavaScript have 53 bits."""
    if isinstance(value, decimal.Decimal) or (isinstance(value, int) and abs(value) > _EXACT):
        value = str(value)
    return _escaped(_plain(value))


def _escaped(value: Any) -> Any:
    """A text so that Plotly, which takes texts for HTML in part, shows it as it is.

    Other values as they are."""
    return html.escape(value, quote=False) if isinstance(value, str) else value


def _axis_type(column: pa.ChunkedArray) -> str:
    """Texts are no numbers, even if they look like some; SQLite keeps dates as texts."""
    if pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type):
        return "date"
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return "-"
    known = [each for each in column.to_pylist() if each is not None]
    return "date" if known and all(map(_DATE.fullmatch, known)) else "category"


def _without_tuples(value: Any) -> Any:
    """Plotly keeps data as tuples."""
    if isinstance(value, dict):
        return {name: _without_tuples(each) for name, each in value.items()}
    return [_without_tuples(each) for each in value] if isinstance(value, list | tuple) else value
