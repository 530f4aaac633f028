"""The charts of a flow's file, ``[[charts]]``, as typed values.

Needs neither Spark nor a library of charts."""

from dataclasses import dataclass

from barnabas.pipelines.flow_file.fields import SpecTable

__all__ = ["Chart", "declare_chart"]


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn of a result."""

    title: str
    type: str
    x: str
    y: tuple[str, ...]
    color: str | None = None
    query: str | None = None
    """SQL over the table ``results``, the sink's rows."""
    sink: int | None = None
    """Which of the flow's sinks; the first that can be read if None."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that are drawn, each behind the name of its field."""
        color = [("color", self.color)] if self.color else []
        return [("x", self.x), *[("y", each) for each in self.y], *color]


def declare_chart(table: SpecTable, number_of_sinks: int) -> Chart:
    """One table ``[[charts]]``."""
    title = table.needed("title")
    kind = table.choice("type", ("line", "bar", "table"), "line")
    x, y = table.text("x"), table.texts("y")
    if kind != "table":
        if not x:
            raise table.fail("x", "is missing: the column along the horizontal axis")
        if not y:
            raise table.fail("y", 'is missing: the figures, like ["flights"]')
    sink = table.number("sink", 0) if table.has("sink") else None
    if sink is not None and sink > number_of_sinks:
        raise table.fail("sink", f"is {sink}, but the flow has {number_of_sinks} sinks; the first is 1")
    return Chart(title, kind, x or "", y, table.text("color"), table.text("query"), None if sink is None else sink - 1)
