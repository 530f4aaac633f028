"""The documentation says what the code does."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


def test_reference_pages_follow_from_the_code() -> None:
    """APIs, settings, commands and the pictures of states are written by
    docs/generate.py and are up to date."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "at_least"), [("read-the-code.md", 60), ("design.md", 25)])
def test_every_file_that_a_page_for_contributors_names_is_there(page: str, at_least: int) -> None:
    """Paths are below src/barnabas or the root; the walks, which name functions too,
    have a test of their own."""
    text = (ROOT / "docs" / "contributing" / page).read_text()
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text)
    assert len(named) >= at_least
    roots = (ROOT / "src" / "barnabas", ROOT, ROOT / "src" / "barnabas" / "coordination")
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_the_design_fits_into_1500_words() -> None:
    """A newcomer reads it in one go: what is added there takes the place of something else."""
    assert len((ROOT / "docs" / "contributing" / "design.md").read_text().split()) <= 1500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that is there."""
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_picture_of_start_and_memory_and_the_readme_have_the_measured_figures() -> None:
    """bench/start_and_memory.py measures and draws; the README repeats the memory in words."""
    figures = json.loads((ROOT / "docs" / "pictures" / "start-and-memory.json").read_text())
    picture = (ROOT / "docs" / "pictures" / "start-and-memory.svg").read_text()
    readme = (ROOT / "README.md").read_text()
    (words,) = re.findall(r"!\[(Start and memory[^\]]*)\]\(docs/pictures/start-and-memory.svg\)", readme)
    for brokers in figures["clusters"].values():
        for system in brokers.values():
            assert f">{system['start_s']} s<" in picture
            assert f">{system['memory_mb']} MB<" in picture
        shown = [f"{system['memory_mb']:,}" for system in brokers.values()]
        assert f"{shown[0]} MB against {shown[1]}" in words or f"{shown[0]} against {shown[1]}" in words


@pytest.mark.parametrize("package", ["client", "testing", "mirror"])
def test_every_module_that_a_package_exports_from_is_on_its_api_page(package: str) -> None:
    """docs/site_hooks.py lists the modules; docs/check_site.py looks for the names
    in the built site."""
    hooks = ast.parse((ROOT / "docs" / "site_hooks.py").read_text())
    (listed,) = [
        ast.literal_eval(node.value)
        for node in hooks.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "API"
    ]
    tree = ast.parse((ROOT / "src" / "barnabas" / package / "__init__.py").read_text())
    prefix = f"barnabas.{package}."
    homes = {
        node.module.removeprefix(prefix)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(prefix)
    }
    assert homes
    assert homes - set(listed[package][1]) == set()


def test_the_picture_of_start_and_memory_is_drawn_from_its_figures() -> None:
    """bench/start_and_memory.py --draw changes nothing."""
    code = (
        "import json, sys; sys.path.insert(0, 'bench'); import start_and_memory as m;"
        "path = m.PICTURES / 'start-and-memory.json';"
        "assert m.draw(json.loads(path.read_text())) == path.with_suffix('.svg').read_text()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pictures_of_the_documentation_are_there_and_load_nothing() -> None:
    """Each is well-formed SVG with a size, and neither a font nor a picture of another server."""
    pictures = list((ROOT / "docs" / "pictures").glob("*.svg"))
    assert len(pictures) >= 4
    shown = "".join(page.read_text() for page in PAGES)
    for picture in pictures:
        text = picture.read_text()
        assert ElementTree.fromstring(text).get("viewBox")
        assert set(re.findall(r"https?://[\w./-]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert f"pictures/{picture.name})" in shown


GLOSSARY_ROW = re.compile(r"^\| `([\w/]+\.py)` \*? ?\| (.+?) \| (.+?) \|$", re.MULTILINE)


def defined_names(path: Path) -> set[str]:
    """Functions, methods, classes and constants of a module and of its classes, not
    what is inside of functions."""
    names = set()
    bodies = [ast.parse(path.read_text()).body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            if isinstance(node, ast.ClassDef | ast.If):
                bodies.append(node.body)
    return names


def test_the_glossary_names_modules_and_names_that_exist() -> None:
    """Each row's module is there, and defines what the row names."""
    rows = GLOSSARY_ROW.findall((ROOT / "docs" / "contributing" / "glossary.md").read_text())
    assert len(rows) > 80
    wrong = []
    for module, names, _ in rows:
        path = ROOT / "src" / "barnabas" / module
        defined = defined_names(path) if path.exists() else set()
        wrong += [f"{module}: {name}" for name in re.findall(r"`(\w+)`", names) if name not in defined]
    assert wrong == []


def test_every_module_of_the_glossary_names_its_counterpart() -> None:
    """A docstring names a class of Kafka or ZooKeeper ("In Kafka: `LogCleaner`."), or says
    "Kafka has no counterpart"."""
    rows = GLOSSARY_ROW.findall((ROOT / "docs" / "contributing" / "glossary.md").read_text())
    assert [module for module, _, other in rows if not re.fullmatch(r"-|.*(`[^`]+`|[A-Z]\w+).*", other)] == []


@pytest.mark.parametrize(
    ("docstring", "counterpart"),
    [
        ("Compacts logs (Kafka's `LogCleaner`).", "`LogCleaner`"),
        ("Compacts logs.\n\nIn Kafka: LogCleaner and\n`Cleaner`.", "`LogCleaner` and `Cleaner`"),
        ("Tries again (Kafka: after a restart).\n\nIn Kafka: `LogCleaner`.", "`LogCleaner`"),
        ("Keeps it in memory, as Kafka: members join again.", None),
        ("As ZooKeeper's `setupRequestProcessors` does.", None),
        ("Syncs logs. Kafka has no counterpart: it syncs in `UnifiedLog.flush`.", "-"),
    ],
)
def test_a_counterpart_is_a_class_that_a_docstring_names_as_such(docstring: str, counterpart: str | None) -> None:
    """Other clauses about Kafka, and classes of the other system, are none."""
    spec = importlib.util.spec_from_file_location("glossary", ROOT / "docs" / "glossary.py")
    glossary = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(glossary)
    assert glossary.counterpart(docstring, "Kafka") == counterpart


def test_the_glossary_has_every_subsystem() -> None:
    """A folder of the broker, the log or the coordination service without a row is missing."""
    rows = GLOSSARY_ROW.findall((ROOT / "docs" / "contributing" / "glossary.md").read_text())
    listed = {Path(module).parent.as_posix() for module, _, _ in rows}
    package = ROOT / "src" / "barnabas"
    folders = {
        path.parent.relative_to(package).as_posix()
        for top in ("broker", "log", "coordination")
        for path in (package / top).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert folders - listed == set()


def test_every_stop_of_the_walks_exists() -> None:
    """The page "Read the code" names files and functions that are there."""
    text = (ROOT / "docs" / "contributing" / "read-the-code.md").read_text()
    stops = re.findall(r"`([\w/]+\.py):(\w+)`", text)
    assert len(stops) > 40
    package = ROOT / "src" / "barnabas"
    wrong = [
        f"{module}:{name}"
        for module, name in stops
        if not (package / module).exists() or name not in defined_names(package / module)
    ]
    assert wrong == []


def test_every_name_that_a_row_places_in_a_file_is_there() -> None:
    """The table of "Read the code" says "`name` in `file`": the file defines it."""
    text = (ROOT / "docs" / "contributing" / "read-the-code.md").read_text()
    places = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) (?:in|of) `([\w/]+/\w+\.py)`", text)
    assert len(places) > 40
    roots = (ROOT / "src" / "barnabas", ROOT)
    wrong = []
    for names, module in places:
        defined = {name for root in roots if (root / module).exists() for name in defined_names(root / module)}
        wrong += [
            f"{module}: {name}"
            for name in re.findall(r"[\w.]+", names)
            if name != "and" and not {*name.split(".")} <= defined
        ]
    assert wrong == []
