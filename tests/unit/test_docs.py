"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


def test_reference_pages_follow_from_the_code() -> None:
    """APIs, settings, commands and the pictures of states are written by docs/generate.py and are up to date."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_file_that_the_design_page_names_is_there() -> None:
    """The map for contributors leads to files that exist; its paths are below src/barnabas or the root."""
    text = (ROOT / "docs" / "contributing" / "design.md").read_text()
    text = text[text.index("## Where a behaviour lives") :]
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text)
    assert len(named) > 20
    roots = (ROOT / "src" / "barnabas", ROOT)
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that is there."""
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
