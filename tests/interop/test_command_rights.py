"""The rights that commands need: the table of the page about access control is what was recorded,
and each of them works with exactly these."""

from pathlib import Path

import pytest

from support.command_rights import needed_rights, recorded_rights, rights_text
from support.pages import DOCS

pytestmark = [pytest.mark.interop]

PAGE = DOCS / "how-to" / "control-access.md"
HEADER = "| command | needs |\n|---|---|\n"


def test_the_table_of_rights_is_what_commands_need(tmp_path: Path) -> None:
    """With these it works, and without any of them it fails or says less."""
    needed = needed_rights(recorded_rights(tmp_path), tmp_path)
    table = HEADER + "".join(f"| `{shown}` | {rights_text(acls)} |\n" for shown, acls in needed.items())
    assert table in PAGE.read_text(), f"the page must have\n\n{table}"
