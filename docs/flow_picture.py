"""The picture of the README: how records flow from clients to databases.

``docs/generate.py`` writes it. Boxes are named here with their place, arrows by the boxes that they
join, so that the picture changes with its words.
"""

from html import escape
from typing import NamedTuple

__all__ = ["flow_picture"]


class Box(NamedTuple):
    """A box: its place in pixels, a title, and the lines below it."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]
    fill: str


class Arrow(NamedTuple):
    """From one point to another, with a word beside its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    text: str = ""
    both_ways: bool = False


CLIENT, SERVER, RESULT = "#eef2f7", "#dff0e6", "#fdf3dc"
BOXES = (
    Box(16, 92, 150, 112, "Producers", ("librdkafka, Java, Go,", "Node, Python,", "Kafka's own tools"), CLIENT),
    Box(
        *(262, 44, 222, 124, "Brokers"),
        ("replicated, partitioned logs,", "a leader and its followers;", "Barnabas, Apache's, or both"),
        SERVER,
    ),
    Box(262, 214, 222, 64, "Coordination", ("one server, or an ensemble",), SERVER),
    Box(574, 16, 176, 64, "Consumer groups", ("share the partitions",), CLIENT),
    Box(574, 100, 176, 64, "Pipelines on Spark", ("with PySpark",), SERVER),
    Box(574, 184, 176, 64, "Mirror", ("copies topics",), SERVER),
    Box(
        *(846, 16, 190, 166, "Results"),
        ("databases", "lake tables", "search indexes", "models", "dashboards", "other topics"),
        RESULT,
    ),
    Box(846, 204, 190, 64, "Another cluster", ("Apache's or Barnabas's",), CLIENT),
)
ARROWS = (
    Arrow(166, 140, 262, 120, "Kafka's protocol"),
    Arrow(370, 168, 370, 214, "ZooKeeper's protocol", both_ways=True),
    Arrow(484, 76, 574, 48),
    Arrow(484, 110, 574, 130),
    Arrow(484, 146, 574, 204),
    Arrow(750, 132, 846, 132),
    Arrow(750, 222, 846, 232),
)
WIDTH, HEIGHT = 1052, 294
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:14px}"
    ".word{font-size:11px;fill:#57606a}rect{stroke:#8c959f}line{stroke:#57606a;stroke-width:1.5}"
)


def flow_picture() -> str:
    """The picture, as SVG."""
    marker = '<marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
    marker += '<path d="M0 0 8 4 0 8z" fill="#57606a"/></marker>'
    parts = [_box(each) for each in BOXES] + [_arrow(each) for each in ARROWS]
    label = "Producers write to brokers, which a coordination service keeps together; groups, pipelines and mirrors read from them"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f'<style>{STYLE}</style><defs>{marker}</defs><rect width="100%" height="100%" rx="6" fill="#ffffff" stroke="none"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _box(box: Box) -> str:
    texts = [f'<text x="{box.x + 12}" y="{box.y + 24}" class="title">{escape(box.title)}</text>']
    for number, line in enumerate(box.lines):
        texts.append(f'<text x="{box.x + 12}" y="{box.y + 46 + 18 * number}">{escape(line)}</text>')
    rect = f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" fill="{box.fill}"/>'
    return rect + "".join(texts)


def _arrow(arrow: Arrow) -> str:
    begin = ' marker-start="url(#a)"' if arrow.both_ways else ""
    line = f'<line x1="{arrow.x1}" y1="{arrow.y1}" x2="{arrow.x2}" y2="{arrow.y2}" marker-end="url(#a)"{begin}/>'
    if not arrow.text:
        return line
    is_upright = arrow.x1 == arrow.x2
    x, y = (arrow.x1 + arrow.x2) // 2, (arrow.y1 + arrow.y2) // 2
    place = f'x="{x + 8}" y="{y + 4}"' if is_upright else f'x="{x}" y="{y - 14}" text-anchor="middle"'
    return f'{line}<text {place} class="word">{escape(arrow.text)}</text>'
