"""Which metrics an expression of Prometheus reads, and which labels it wants of them.

It reads what the expressions of `barnabas.metrics` are made of: names, selectors, functions and
aggregations. Whether an expression is one at all, ``promtool check rules`` says.

In Prometheus: package ``promql/parser``.
"""

import re
from collections.abc import Mapping

from barnabas.base.metric import Metric

__all__ = ["readings", "suffixes_of"]

_KEYWORDS = frozenset(
    (
        *("and", "bool", "by", "group_left", "group_right", "ignoring", "offset", "on", "or", "unless", "without"),
        *("inf", "nan"),
    )
)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE = re.compile(r"\[[^\]]*\]")
_LABEL_LIST = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_READING = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?P<call>\()?(?:\{(?P<selector>[^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}


def suffixes_of(metric: Metric) -> tuple[str, ...]:
    """What stands behind the name of a metric on a page."""
    return _SUFFIXES.get(metric.kind, ("",))


def readings(expression: str, known: Mapping[str, Metric]) -> list[tuple[Metric, frozenset[str]]]:
    """The metrics that an expression reads, each with the labels that it selects or groups by.

    Raises ValueError for a name that is no metric's. Labels that Prometheus adds (job, instance)
    are left out."""
    plain = _RANGE.sub("", _TEXT.sub('""', expression))
    grouped = {label.strip() for found in _LABEL_LIST.finditer(plain) for label in found[1].split(",") if label.strip()}
    grouped |= set(re.findall(r'label_replace\([^,]*,\s*"(\w+)"', expression))
    names = {f"{metric}{suffix}": metric for metric in known.values() for suffix in suffixes_of(metric)}
    found = []
    for each in _READING.finditer(_LABEL_LIST.sub("", plain)):
        name = each["name"]
        if each["call"] or name.lower() in _KEYWORDS or not name[0].isalpha() or _is_number(name):
            continue
        metric = names.get(name)
        if metric is None:
            raise ValueError(f"{name} is no metric: {expression}")
        selected = set(_MATCHER.findall(each["selector"] or ""))
        found.append((metric, frozenset(selected | (grouped & {*metric.labels})) - {"job", "instance", "le"}))
    return found


def _is_number(name: str) -> bool:
    return re.fullmatch(r"e\d+|\d+\w*", name) is not None
