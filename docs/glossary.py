"""The tables of the glossary, from the docstrings: which module does what a class of Kafka,
ZooKeeper or Confluent's servers does there.

A module's docstring names its counterpart in a sentence that begins with "In Kafka:", "Kafka:" or
the same of the other systems, or in brackets, as "(Kafka's `LogCleaner`)". It must name a class or
a method; or it says that Kafka "has no counterpart".
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "barnabas"
STRUCTURE = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["barnabas"]["structure"]
EDGE_NAMES = STRUCTURE["edge_names"]
TOPS = {
    "broker": ("The broker", "Kafka"),
    "log": ("The log", "Kafka"),
    "coordination": ("Coordination", "ZooKeeper"),
    "client": ("The clients", "Kafka"),
    "security": ("Security", "Kafka"),
    "registry": ("The schema registry", "Confluent's registry"),
    "rest": ("The REST proxy", "Confluent's proxy"),
}

_CLASS = r"[A-Z][a-z]+[A-Z]\w*|(?!KRaft)[A-Z]{2,}[a-z]\w+|[A-Z]\w+(?=\.\w)"
_SENTENCE = r"(?:^|(?<=\. ))(?:In )?{system}: (.+?)\.(?:\s|$)"
_OTHER_FORMS = (
    r"\([^()]*?(?:in )?{system}(?:'s|:) ([^)]*)\)",
    r"{system}'s (`[^`]+`(?:(?:, | and |: )`[^`]+`)*)",
    rf"{{system}}'s ((?:{_CLASS})(?:\.\w+)*)",
)
_NONE = "no counterpart"
UNKNOWN = "?"
"""Stands in the table for a docstring that names no counterpart; a test finds it."""
_MOST_NAMES = 4


def counterpart(docstring: str, system: str) -> str | None:
    """The counterpart that a docstring names, with classes as code.

    "-" for none; None when it does not mention one."""
    docstring = docstring.replace("``", "`")
    text = " ".join(docstring.split())
    if re.search(rf"{system}(?:: | has ){_NONE}", text):
        return "-"
    found = re.search(_SENTENCE.replace("{system}", system), docstring, re.DOTALL | re.MULTILINE)
    if found and re.search(r"`|\b[A-Z]", found[1]):
        return _as_code(" ".join(found[1].split()))
    for form in _OTHER_FORMS:
        if (found := re.search(form.replace("{system}", system), text)) and "`" in _as_code(found[1]):
            return _as_code(found[1])
    return None


def _as_code(text: str) -> str:
    """Mark names of classes, methods and packages as code, where they are not marked yet."""
    parts = text.split("`")
    name = re.compile(rf"(?<![\w.])(?:(?:{_CLASS})(?:\.\w+)*|(?:org|kafka)(?:\.\w+)+|[a-z]+[A-Z]\w*)")
    parts[::2] = [name.sub(r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def _names(module: ast.Module, title: str) -> list[str]:
    """The classes and functions that a module exports, in the order of their definitions: its
    namesake first, errors last."""
    exported: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            exported = {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    defined = [
        node for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in exported
    ]
    names = [node.name for node in defined] or sorted(name for name in exported if name.isupper())
    return sorted(names, key=lambda name: (name.lower() != title, name.endswith("Error")))


def rows(folder: Path, system: str) -> Iterator[str]:
    """The modules of a folder, and their counterparts."""
    for path in sorted(folder.glob("*.py")):
        if path.name == "__init__.py":
            continue  # it heads the table
        module = ast.parse(path.read_text())
        if any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "API" for node in module.body):
            continue
        names = _names(module, path.stem.replace("_", ""))
        shown = [f"`{name}`" for name in names[:_MOST_NAMES]] + (["..."] if len(names) > _MOST_NAMES else [])
        edge = " *" if path.name in EDGE_NAMES else ""
        other = counterpart(ast.get_docstring(module) or "", system) or UNKNOWN
        yield f"| `{path.relative_to(PACKAGE).as_posix()}`{edge} | {', '.join(shown) or '-'} | {other} |"


def tables() -> str:
    """A table for each folder of the parts that `TOPS` names."""
    lines = []
    for top, (title, system) in TOPS.items():
        lines += [f"## {title}", ""]
        folders = [PACKAGE / top, *(path for path in sorted((PACKAGE / top).rglob("*")) if path.is_dir())]
        for folder in folders:
            if not (folder / "__init__.py").exists() or not (found := list(rows(folder, system))):
                continue
            docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
            if folder.name != top:
                lines += [f"### {folder.relative_to(PACKAGE).as_posix()}", ""]
            lines += [" ".join(docstring.split("\n\n")[0].split()), ""]
            lines += [f"| module | names | in {system} |", "|---|---|---|", *found, ""]
    return "\n".join(lines).rstrip()


def edges() -> str:
    """The file names of edges, as code."""
    names = [f"`{name}`" for name in EDGE_NAMES]
    return f"{', '.join(names[:-1])} and {names[-1]}"
