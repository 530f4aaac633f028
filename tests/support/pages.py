"""The commands and files of a page of documentation, and what the page shows of their output.

A page may mark a block with a line of its own before it, which readers do not see:

- ``<!-- not run: REASON -->``: no test executes its commands.
- ``<!-- file: NAME -->``: the block is the content of a file. It is not needed where the
  paragraph before it begins with the file's name.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"(\s*)```(\w*)\s*$")
_MARK = re.compile(r"\s*<!-- (not run|file): (.+) -->$")
_FILE = re.compile(r"\s*`([\w./-]+\.(?:properties|cfg|toml|py|csv|json))`[^`]*:$")


class Command(NamedTuple):
    """A line after ``$``, with its continuation lines.

    What stands below it; the heading above it; why no test runs it."""

    section: str
    line: str
    output: list[str]
    not_run: str = ""


class Block(NamedTuple):
    """A fenced block: its language, its text, the file that it is, the heading above
    it, why no test runs it."""

    section: str
    language: str
    text: str
    file: str
    not_run: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    section, previous = "", False
    marks: dict[str, str] = {}
    paragraph: list[str] = []
    inside: tuple[str, str] | None = None
    lines: list[str] = []
    for line in page.read_text().splitlines():
        fence = _FENCE.match(line)
        if inside is not None:
            if not fence:
                lines.append(line.removeprefix(inside[0]))
                continue
            named = _FILE.match(" ".join(paragraph))
            file = marks.get("file") or (named[1] if named else "")
            found.append(Block(section, inside[1], "\n".join(lines) + "\n", file, marks.get("not run", "")))
            inside, marks, paragraph = None, {}, []
        elif fence:
            inside, lines = (fence[1], fence[2]), []
        elif mark := _MARK.match(line):
            marks[mark[1]] = mark[2]
        elif line.startswith("#"):
            section, paragraph = line.lstrip("# "), []
        elif line.strip():
            paragraph = [*paragraph, line.strip()] if previous else [line.strip()]
        previous = bool(line.strip())
    return found


def file_of(page: Path, name: str) -> str:
    """A file that a page shows."""
    (text,) = (block.text for block in blocks(page) if block.file == name)
    return text


def commands_of(block: Block) -> list[Command]:
    """The commands of a block; what is not marked as a console is an excerpt."""
    if block.language != "console":
        return []
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(block.section, line[2:], [], block.not_run))
        elif found and found[-1].line.endswith("\\") and not found[-1].output:
            found[-1] = found[-1]._replace(line=found[-1].line[:-1] + line.strip())
        elif found:
            found[-1].output.append(line)
    return found


def commands(page: Path) -> list[Command]:
    """All commands in the console blocks of a page, in order."""
    return [command for block in blocks(page) for command in commands_of(block)]


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


def shape(line: str) -> str:
    """A line without its numbers, ids, addresses and widths of columns."""
    line = re.sub(r"0x[\da-f]+|(?<![\w-])[\w-]{22}(?![\w-])", "N", steady(line))
    line = re.sub(r"\b(localhost|127\.0\.0\.1):\d+", "ADDRESS", line)
    return " ".join(re.sub(r"\d[\d.,:/]*", "N", line).split())


def missing(command: Command, here: Callable[[str], str], output: str) -> list[str]:
    """Lines that the page shows below a command and that its output lacks.

    ``...`` stands for anything."""
    printed = [shape(line) for line in output.splitlines()]
    lacking = []
    for line in command.output:
        parts = [re.escape(shape(part)) for part in here(line).split("...")]
        pattern = re.compile(r"\s*.*\s*".join(parts))
        if line.strip() and not line.startswith("> ") and not any(map(pattern.fullmatch, printed)):
            lacking.append(line)
    return lacking
