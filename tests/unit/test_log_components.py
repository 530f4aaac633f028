"""The components of a log keep their own invariants: no code outside of a class
writes its attributes."""

import ast
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "src" / "barnabas" / "log"


def foreign_writes(tree: ast.Module) -> list[str]:
    """Assignments to attributes of other objects than self, unless a class of the
    same module declares them."""
    own = {
        element.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == "__slots__" for to in node.targets)
        for element in ast.walk(node.value)
        if isinstance(element, ast.Constant)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else []:
            found += [
                f"line {part.lineno}: {ast.unparse(part)}"
                for part in ast.walk(target)
                if isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and not (isinstance(part.value, ast.Name) and part.value.id == "self")
                and part.attr not in own
            ]
    return found


@pytest.mark.parametrize("path", sorted(LOG.rglob("*.py")), ids=lambda path: path.relative_to(LOG).as_posix())
def test_no_code_writes_the_attributes_of_another_modules_part(path: Path) -> None:
    """A change goes through a method of the component, which keeps what holds
    between its attributes."""
    assert foreign_writes(ast.parse(path.read_text())) == []


def test_the_check_sees_a_foreign_write() -> None:
    """The check above can fail."""
    tree = ast.parse("class A:\n    __slots__ = ('own',)\n\nlog.own = 1\nlog.bounds.end, x = 1, 2\nself.y = 3\n")
    assert foreign_writes(tree) == ["line 5: log.bounds.end"]
