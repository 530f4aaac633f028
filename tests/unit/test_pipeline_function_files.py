"""Python files that a flow names: parsed to be checked, run only to be used."""

import inspect
import json
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.cli.pipelines.pipeline import main
from barnabas.pipelines.flow_file.fields import SpecError
from barnabas.pipelines.flow_file.function_files import ANY_PARAMETERS, FunctionUse, parse_function
from barnabas.pipelines.specification import spec

FLOW = """
name = "flow"
checkpoint = "state"
[source]
bootstrap_servers = "h:1"
topics = ["t"]
format = { type = "json", columns = { k = "string" } }
[[steps]]
function = "functions.py:late"
[[sinks]]
function = "functions.py:keep"
"""
FUNCTIONS = """
from pathlib import Path
Path(__file__).with_name("written").touch()

def late(rows):
    return rows

def keep(rows, number):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A flow whose functions' file leaves a mark when it is run."""
    (tmp_path / "flow.toml").write_text(FLOW)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "state").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "words", [["check", "--without-spark"], ["status"], ["reset"], ["stop"]], ids=lambda words: words[0]
)
def test_actions_that_need_no_function_do_not_run_their_files(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow of another person can be checked before its code is run."""
    monkeypatch.setattr("barnabas.pipelines.cluster.kafka_cluster._REQUEST_TIMEOUT_S", 0.1)  # no broker is there
    monkeypatch.setattr("barnabas.pipelines.checks.trial._TIMEOUT_MS", 100)
    action, *options = words
    main([action, str(folder / "flow.toml"), *options])
    capsys.readouterr()
    assert not (folder / "written").exists()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("def late", "def latest", r"steps\[0\].function: functions.py has no function late"),
        ("def late(rows", "def late(row", r"steps\[0\].function: late has the parameter row, which is no source"),
        ("def keep(rows, number)", "def keep(rows)", r"sinks\[0\].function: keep must take a micro-batch's rows"),
        ("def keep(rows", "def keep(rows=1", r"sinks\[0\].function: cannot load functions.py: SyntaxError"),
    ],
)
def test_what_can_be_known_of_a_function_is_checked_without_running_it(
    old: str, new: str, problem: str, folder: Path
) -> None:
    """With the field, as when it is run."""
    text = FUNCTIONS.replace(old, new)
    if "SyntaxError" in problem:  # the step would be first
        (folder / "flow.toml").write_text(FLOW.replace('[[steps]]\nfunction = "functions.py:late"\n', ""))
    (folder / "functions.py").write_text(text)
    with pytest.raises(SpecError, match=problem):
        spec.load(folder / "flow.toml", functions=FunctionUse.PARSE)
    assert not (folder / "written").exists()


def test_a_function_that_was_not_run_has_its_name_and_cannot_be_called(folder: Path) -> None:
    """It stands for the function in what is shown and compared."""
    flow = spec.load(folder / "flow.toml", functions=FunctionUse.PARSE)
    function = flow.steps[0].function
    assert function is not None
    assert (flow.steps[0].name, flow.steps[0].inputs("source")) == ("late", ("source",))
    with pytest.raises(BarnabasError, match="was not run, so late cannot be called"):
        function(1)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("def f(a, /, b, c=1, *d, e, g=2, **h): pass", "(a, /, b, c=None, *d, e, g=None, **h)"),
        ("def f(): pass", "()"),
        ("@wrap\ndef f(a): pass", None),
        ("f = make()", None),
        ("from x import g as f", None),
        ("if True:\n  def f(a): pass\nelse:\n  f = None", None),
        ("try:\n  import f\nexcept ImportError:\n  pass", None),
        ("for f in (1,): pass", None),
        ("from shared import *", None),
        ("def f(a): pass\nfrom shared import *", None),
        ("match 1:\n  case 1:\n    def f(a): pass", "(a)"),
        ("match 1:\n  case f: pass", None),
        ("match [1]:\n  case [*f]: pass", None),
        ("match {}:\n  case {**f}: pass", None),
        ("try:\n  pass\nexcept* OSError:\n  def f(a): pass", "(a)"),
        ("globals()['f'] = print", None),
        ("exec('f = print')", None),
        ("import sys\nsetattr(sys.modules[__name__], 'f', print)", None),
        ("import sys\nsys.modules[__name__].f = print", None),
        ("def make():\n  global f\n  f = print\nmake()", None),
        ("print(f := print)", None),
        ("class f:\n  def __init__(self, a): pass", None),
    ],
)
def test_parameters_are_those_of_a_plain_definition(text: str, parameters: str | None, tmp_path: Path) -> None:
    """Of others they are known when the file is run."""
    file = tmp_path / "functions.py"
    file.write_text(text)
    found = parse_function(str(file), "f")
    assert found is not None
    signature = inspect.signature(found)
    assert (signature is ANY_PARAMETERS) if parameters is None else str(signature) == parameters


@pytest.mark.parametrize("action", ["status", "stop", "reset"])
@pytest.mark.parametrize("functions", [None, "def (", "def late(nothing): pass\ndef keep(): pass", "late = keep = 1"])
def test_a_flow_is_watched_and_stopped_whatever_its_functions_are(
    action: str, functions: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their file may be gone, or be changed at the moment."""
    monkeypatch.setattr("barnabas.cli.pipelines.pipeline._act", lambda *_: 0)
    (folder / "functions.py").unlink()
    if functions is not None:
        (folder / "functions.py").write_text(functions)
    assert main([action, str(folder / "flow.toml")]) == 0


@pytest.mark.parametrize("text", ["def g():\n  f = 1", "class A:\n  def f(self): pass", "print(f)", ""])
def test_a_name_that_the_module_does_not_bind_is_no_function(text: str, tmp_path: Path) -> None:
    """Inner functions and methods are not the module's."""
    file = tmp_path / "functions.py"
    file.write_text(text)
    assert parse_function(str(file), "f") is None


def test_a_check_without_spark_lists_what_is_wrong_for_programs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one with Spark does."""
    (folder / "functions.py").unlink()
    assert main(["check", str(folder / "flow.toml"), "--without-spark", "--output", "json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [each["field"] for each in problems] == ["steps[0].function"]
