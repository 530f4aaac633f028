"""A new command is one module and one entry in the table of commands."""

from pathlib import Path

import pytest

import barnabas.cli
from barnabas.cli.commands import COMMANDS, CommandEntry
from barnabas.cli.main import main
from barnabas.cli.setup.completion import words

GREET = '''
"""``barnabas greet``: says hello."""

from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.terminal import print


def main(argv: list[str]) -> int:
    parser = ToolParser("greet", "Say hello.")
    parser.add_argument("--name", default="world", help="whom to greet")
    print(f"hello, {parser.parse_args(argv).name}")
    return 0
'''


@pytest.fixture
def greet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two things that a new command needs."""
    (tmp_path / "greet.py").write_text(GREET)
    monkeypatch.setattr(barnabas.cli, "__path__", [*barnabas.cli.__path__, str(tmp_path)])
    entry = CommandEntry("greet", "say hello", scripts=("kafka-greet",), classes=("kafka.tools.GreetCommand",))
    monkeypatch.setitem(COMMANDS, "greet", entry)


@pytest.mark.usefixtures("greet")
def test_a_module_and_an_entry_make_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It runs, has help, and is in the list of commands."""
    assert main(["greet", "--name", "ann"]) == 0
    assert capsys.readouterr().out == "hello, ann\n"
    assert main(["help", "greet"]) == 0
    assert "whom to greet" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "say hello" in capsys.readouterr().out


@pytest.mark.usefixtures("greet")
def test_shells_complete_a_new_command_and_its_options() -> None:
    """Completion reads the table, and the command's own help."""
    assert words(["gree"]) == ["greet"]
    assert words(["greet", "--n"]) == ["--name"]


@pytest.mark.usefixtures("greet")
def test_a_new_command_has_the_names_of_apaches_scripts_and_classes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``shims`` writes the script, ``run-class`` knows the class."""
    assert main(["run-class", "kafka.tools.GreetCommand"]) == 0
    assert capsys.readouterr().out == "hello, world\n"
    assert main(["shims", str(tmp_path / "bin")]) == 0
    assert "barnabas greet" in (tmp_path / "bin" / "kafka-greet.sh").read_text()


def test_every_entry_names_a_module_with_a_main_function() -> None:
    """And no script and no class belongs to two commands."""
    for command in COMMANDS.values():
        path = Path(barnabas.cli.__file__).parent / f"{command.module.replace('.', '/')}.py"
        assert "\ndef main(argv: list[str]) -> int:" in path.read_text(), path
    names = [name for command in COMMANDS.values() for name in (*command.scripts, *command.classes)]
    assert len(names) == len(set(names))
