"""Check the built documentation: its search knows every page, and its API reference
every name that is exported.

``make docs`` runs it after the build; it ends with 1 and says what is missing. It needs no package.
"""

import ast
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
PACKAGES = ("client", "testing", "mirror")
CONSTANTS_ELSEWHERE = {"TopicPartition"}
"""Exported by the client, and documented with the type that it is an alias of."""


def exported(package: str) -> list[str]:
    """The names in ``__all__`` of a package."""
    tree = ast.parse((ROOT / "src" / "barnabas" / package / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(each, "id", "") == "__all__" for each in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    raise AssertionError(f"barnabas.{package} exports nothing")


def main() -> int:
    """Look for what is missing."""
    index = json.loads((SITE / "search" / "search_index.json").read_text())
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    missing = [f"the search does not know {page}" for page in sorted(pages - searched)]
    headings = {
        entry["title"].split(" ")[0] for entry in index["docs"] if entry["location"].startswith("reference/api-")
    }
    for package in PACKAGES:
        page = (SITE / "reference" / f"api-{package}.html").read_text()
        for name in exported(package):
            if name not in CONSTANTS_ELSEWHERE and f'.{name}"' not in page:
                missing.append(f"the API of barnabas.{package} lacks {name}")
            elif name not in CONSTANTS_ELSEWHERE and name not in headings:
                missing.append(f"the search does not find barnabas.{package}.{name}")
    print(*missing, sep="\n", file=sys.stderr)
    print(f"{len(searched)} pages and {len(index['docs'])} headings can be searched")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
