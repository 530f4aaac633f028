"""The alert rules as a file of Prometheus.

In Prometheus: a file that ``rule_files`` names; ``promtool check rules`` reads it.
"""

import json
from collections.abc import Iterable, Iterator

from barnabas.metrics.alerts import Alert, AlertGroup

__all__ = ["rules_yaml"]


def rules_yaml(groups: Iterable[AlertGroup]) -> str:
    """The text of the file."""
    return "\n".join([*_lines(groups), ""])


def _lines(groups: Iterable[AlertGroup]) -> Iterator[str]:
    yield "# Written by `barnabas metrics rules`: change a copy, or let it be written again."
    yield "groups:"
    for group in groups:
        yield f"  - name: {group.name}"
        yield "    rules:"
        for alert in group.alerts:
            yield from _rule(alert)


def _rule(alert: Alert) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield f"        expr: {_text(alert.expression)}"
    yield f"        for: {alert.for_}"
    yield "        labels:"
    yield f"          severity: {alert.severity}"
    yield "        annotations:"
    yield f"          summary: {_text(alert.summary)}"
    yield f"          description: {_text(alert.description)}"
    yield f"          look: {_text(alert.look)}"


def _text(text: str) -> str:
    """In double quotes, where YAML has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False)
