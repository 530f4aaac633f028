"""Every command line in the documentation names a command and options that exist."""

import contextlib
import io
import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from barnabas.cli.commands import COMMANDS
from support.pages import DOCS, commands

PAGES = sorted(page for page in [DOCS.parent / "README.md", *DOCS.glob("**/*.md")] if commands(page))
_SEPARATORS = re.compile(r"\s(?:\||&&|;|>|<|&)(?:\s|$)")


@cache
def options(command: str, *action: str) -> frozenset[str]:
    """The options of a command, or of one of its actions, as its help lists them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        import_module(f"barnabas.cli.{COMMANDS[command].module}").main([*action, "--help"])
    return frozenset(re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", shown.getvalue()))


def test_pages_have_commands() -> None:
    """The reader of pages finds them."""
    assert len(PAGES) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS.parent).as_posix())
def test_every_command_line_of_the_page_can_be_typed(page: Path) -> None:
    """A misspelt command or option in a page is found here."""
    wrong = []
    for each in commands(page):
        for part in _SEPARATORS.split(each.line):
            words = shlex.split(part, comments=True)
            if "barnabas" not in words[:1] or len(words) < 2:
                continue
            name, *rest = words[1:]
            if name not in COMMANDS:
                wrong.append(each.line)
                continue
            given = {word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)}
            if name == "run-class" or not options(name):
                continue
            action = [word for word in rest[:1] if not word.startswith("-")]
            wrong += [f"{option} in {each.line}" for option in given - options(name) - options(name, *action)]
    assert wrong == []
