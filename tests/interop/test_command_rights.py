"""The rights that commands, `Admin` and mirrors need: the tables of the documentation are what was
recorded, and each of them works with exactly these."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.cli.commands import COMMANDS as ALL_COMMANDS
from barnabas.testing import Cluster
from support.admin_rights import CALLS, methods_in_table, public_methods
from support.command_rights import COMMANDS, Use, commands_in_tables, needed_rights, recorded_rights, rights_text
from support.mirror_rights import mirrors, prepare_other
from support.pages import DOCS

pytestmark = [pytest.mark.interop]


def check_table(page: str, title: str, uses: Sequence[Use], folder: Path) -> None:
    """With these rights each works, and without any of them it fails and names what is missing, or
    says less."""
    needed = needed_rights(uses, recorded_rights(uses, folder), folder)
    table = f"| {title} | needs |\n|---|---|\n"
    table += "".join(f"| `{shown}` | {rights_text(acls)} |\n" for shown, acls in needed.items())
    assert table in (DOCS / "how-to" / page).read_text(), f"{page} must have\n\n{table}"


def test_the_table_of_commands_is_what_they_need(tmp_path: Path) -> None:
    """Exactly, and in the order of the page."""
    check_table("control-access.md", "command", COMMANDS, tmp_path)


def test_the_table_of_admins_methods_is_what_they_need(tmp_path: Path) -> None:
    """Each is called."""
    check_table("control-access.md", "`Admin`", CALLS, tmp_path)


def test_the_table_of_mirrors_is_what_they_need(tmp_path: Path) -> None:
    """At the source and at the target, with a link and without."""
    with Cluster() as other:
        prepare_other(other)
        check_table("mirror-topics.md", "mirror", mirrors(other), tmp_path)


def test_no_command_and_no_method_is_missing_in_the_tables() -> None:
    """Unless it asks brokers for nothing."""
    assert commands_in_tables() == set(ALL_COMMANDS)
    assert methods_in_table() == public_methods()
