"""Every command line in the documentation names a command and options that exist."""

import contextlib
import io
import re
import shlex
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from barnabas.cli.commands import COMMANDS
from support.pages import DOCS, commands

PAGES = sorted(page for page in [DOCS.parent / "README.md", *DOCS.glob("**/*.md")] if commands(page))
_SEPARATORS = re.compile(r"\s(?:\||&&|;|>|<|&)(?:\s|$)")


@cache
def help_of(command: str, *action: str) -> str:
    """What a command, or one of its actions, prints as its help."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        import_module(f"barnabas.cli.{COMMANDS[command].module}").main([*action, "--help"])
    return shown.getvalue()


def options(command: str, words: Sequence[str]) -> frozenset[str]:
    """The options of a command, and of the action that the words after its name begin with."""
    text = help_of(command)
    if words and re.search(rf"^    {re.escape(words[0])}( |$)", text, re.MULTILINE):
        text += help_of(command, words[0])
    return frozenset(re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", text))


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
            if name == "run-class" or not options(name, rest):
                continue
            wrong += [f"{option} in {each.line}" for option in given - options(name, rest)]
    assert wrong == []
