"""The commands of a page of documentation, and what the page shows of their output."""

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"


class Command(NamedTuple):
    """A line after ``$``, with its continuation lines; what stands below it; the heading above it."""

    section: str
    line: str
    output: list[str]


def commands(page: Path) -> list[Command]:
    """All commands in the console blocks of a page, in order."""
    found: list[Command] = []
    section, inside = "", False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = line == "```console"
        elif line.startswith("## "):
            section = line[3:]
        elif inside and line.startswith("$ "):
            found.append(Command(section, line[2:], []))
        elif inside and found and found[-1].line.endswith("\\") and not found[-1].output:
            found[-1] = found[-1]._replace(line=found[-1].line[:-1] + line.strip())
        elif inside and found:
            found[-1].output.append(line)
    return found


_CHANGING = (
    (r"TopicId: \S+", "TopicId: ID"),
    (r"Leader: (?!none)\S+", "Leader: N"),
    (r"Partition: \d+(\s+Leader: none)", r"Partition: N\1"),
    (r"(Replicas|Isr): [\d,]+", r"\1: N"),
    (r'"(timestamp|brokerid)":"?\d+"?', r'"\1":N'),
    (r"^(\^C|>)", ""),
)


def steady(line: str) -> str:
    """A line without what differs from run to run: ids, leaders, times."""
    for pattern, replacement in _CHANGING:
        line = re.sub(pattern, replacement, line)
    return line.rstrip()
