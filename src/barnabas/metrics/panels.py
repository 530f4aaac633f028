"""What a dashboard is made of: rows of panels, each with expressions.

In Grafana: the model of a dashboard, of which this is the part that is used here.
"""

from typing import NamedTuple

__all__ = ["GrafanaDashboard", "Panel", "PanelRow", "Query", "Variable"]


class Query(NamedTuple):
    """An expression, and how its lines are named: ``{{label}}`` stands for the value of a label."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """A picture of one or more expressions."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    """Grafana's name of a unit: short, bytes, Bps, ms, s, percentunit."""
    kind: str = "timeseries"
    """timeseries, stat or table"""
    text: str = ""
    """What it shows, and what to do about it."""
    red_above: float | None = None
    """A value above it is wrong."""
    red_below: float | None = None
    """A value below it is wrong."""


class PanelRow(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Variable(NamedTuple):
    """A choice at the top of a dashboard: the values of a label of a metric."""

    name: str
    metric: str
    label: str


class GrafanaDashboard(NamedTuple):
    """A page of Grafana."""

    uid: str
    """Its name in addresses, and that of its file."""
    title: str
    text: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()
