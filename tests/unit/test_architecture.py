"""The layering and the purity of deciding code, as failing tests."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "barnabas"

# The only places that may touch the event loop, sockets, clocks, threads and the process: docs/contributing/design.md.
EDGES = (
    "__main__.py",
    "net/",
    "client/",
    "cli/",
    "testing/",
    "mirror/",
    "pipelines/",
    "base/clock.py",
    "base/files.py",
    "base/randomness.py",
    "coordination/server/server.py",
    "coordination/client/blocking.py",
    "coordination/client/connection.py",
    "broker/server.py",
    "broker/cluster/channels.py",
    "broker/controller/channel_manager.py",
    "broker/controller/service.py",
    "broker/groups/service.py",
    "broker/membership/service.py",
    "broker/replication/service.py",
    "broker/storage/service.py",
)
IMPURE = {
    "asyncio",
    "concurrent",
    "ctypes",
    "datetime",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}
MAX_LINES = 700


def pure_modules() -> list[Path]:
    modules = list(PACKAGE.rglob("*.py"))
    return [path for path in modules if not path.relative_to(PACKAGE).as_posix().startswith(EDGES)]


def impure_uses(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "input"):
            names = [f"{node.func.id}()"]
        else:
            continue
        found += [
            f"line {node.lineno}: {name}"
            for name in names
            if name.endswith("()") or (name.split(".")[0] in IMPURE and name not in ("os.path", "collections.abc"))
        ]
    return found


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_deciding_code_has_no_hand_on_the_world(path: Path) -> None:
    """Modules that are not edges import no loop, socket, clock, thread, process or global randomness."""
    assert impure_uses(ast.parse(path.read_text())) == []


def test_the_purity_check_sees_an_import_it_forbids() -> None:
    """The check above can fail."""
    assert impure_uses(ast.parse("import time\nfrom os import read\nopen('x')")) == [
        "line 1: time",
        "line 2: os",
        "line 3: open()",
    ]


def test_imports_run_down_the_layers_only() -> None:
    """import-linter's contracts in pyproject.toml hold."""
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert program, "lint-imports is missing: run `make install`"
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_outgrows_a_readers_patience(path: Path) -> None:
    """A module longer than this asks to be split (message declarations aside, which are lists)."""
    if "messages" not in path.parts:
        assert len(path.read_text().splitlines()) <= MAX_LINES


def test_every_test_says_in_a_sentence_what_it_holds() -> None:
    """Tests are the specification, so each has a docstring."""
    bare = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                bare += [] if ast.get_docstring(node) else [f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"]
    assert bare == []
