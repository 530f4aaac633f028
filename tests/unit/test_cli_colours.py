"""Colours of what commands print: on terminals that have them, and nowhere else."""

import ast
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import barnabas.cli
from barnabas.cli.main import main
from barnabas.cli.output import terminal
from barnabas.cli.output.colours import Style, painted
from barnabas.cli.output.tables import aligned
from barnabas.cli.output.terminal import columns, print_lines
from support.terminals import on_terminal

RED, YELLOW, BOLD, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"


@pytest.fixture(autouse=True)
def colourful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with colours, whatever the tests run in."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_an_error_is_red_to_its_end() -> None:
    """The next line has the terminal's own colour."""
    shown = on_terminal(lambda: main(["tail", "t", "--bootstrap-server", "127.0.0.1:1"]))
    assert shown == f"{RED}Error: 127.0.0.1:1 refused the connection: is a broker running there?{PLAIN}\n"


def test_an_argument_error_is_red_and_its_help_line_is_plain() -> None:
    """So is the name of a command that does not exist."""
    shown = on_terminal(lambda: main(["tail", "t", "--lats", "3"]))
    assert shown == f"{RED}unrecognized arguments: --lats 3; did you mean --last?{PLAIN}\nSee barnabas tail --help.\n"
    shown = on_terminal(lambda: main(["tial"]))
    assert shown == f"{RED}barnabas: there is no command 'tial'; did you mean tail?{PLAIN}\n"


def test_a_warning_is_yellow(tmp_path: Path) -> None:
    """Before the error that follows."""
    file = str(tmp_path / "client.properties")
    Path(file).write_text("clinet.id=x\n")
    shown = on_terminal(lambda: main(["tail", "t", "--bootstrap-server", "127.0.0.1:1", "--command-config", file]))
    assert shown.startswith(f"{YELLOW}warning: clinet.id in {file} is not a property of clients")
    assert f"{PLAIN}\n{RED}Error: " in shown


def test_commands_print_errors_and_warnings_with_the_functions_for_it() -> None:
    """So all have the colours, and the same words before them."""
    printed_otherwise = [
        f"{path.name}:{call.lineno}"
        for path in Path(barnabas.cli.__file__).parent.rglob("*.py")
        if path.name != "colours.py"
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("print", "print_lines")
        if re.search(r"Style\.(ERROR|WARNING)|['\"](warning|Error): ", ast.unparse(call))
    ]
    assert printed_otherwise == []


def test_the_header_of_a_table_is_bold_and_its_columns_stay() -> None:
    """The sequences take no column."""
    shown = on_terminal(lambda: print_lines(aligned(("GROUP", "LAG"), [("kitchen", 1)])))
    assert shown == f"{BOLD}GROUP   LAG{PLAIN}\nkitchen 1\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "")])
def test_the_environment_takes_colours_away(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR of any value, and terminals that know no sequences."""
    monkeypatch.setenv(name, value)
    shown = on_terminal(lambda: main(["tail", "t", "--bootstrap-server", "127.0.0.1:1"]))
    assert shown == "Error: 127.0.0.1:1 refused the connection: is a broker running there?\n"


def test_an_empty_no_color_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """As https://no-color.org has it."""
    monkeypatch.setenv("NO_COLOR", "")
    assert RED in on_terminal(lambda: main(["tial"]))


def test_pipes_and_files_get_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read them."""
    assert main(["tial"]) == 2
    print_lines(aligned(("GROUP", "LAG"), [("kitchen", 1)]))
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err


@given(st.text(max_size=40), st.sampled_from(Style))
def test_a_text_from_outside_stays_escaped_within_its_colour(text: str, style: Style) -> None:
    """A name with a sequence of its own changes no colour, and the same columns are taken."""
    shown = on_terminal(lambda: terminal.print(painted(style, f"<{text}>", sys.stdout)))
    plain = on_terminal(lambda: terminal.print(f"<{text}>"))
    assert shown == f"{style.value}{plain[:-1]}{PLAIN}\n"
    assert columns(plain[:-1]) >= 2
