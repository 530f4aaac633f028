"""Requests that name a subject by its alias."""

import pytest

from barnabas.registry.http.operations import OPERATIONS, Call
from support.registry_log import Instance, SchemasLog


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_an_alias_is_replaced_in_subjects_and_not_in_configurations(operation: object) -> None:
    """So rights are checked for the subject that is meant; a configuration sets the alias."""
    found = next(each for each in OPERATIONS if each is operation)
    instance = Instance(SchemasLog())
    instance.set_config("old", alias="new")
    call = Call.meant(instance.registry, found, {"subject": "old"}, {"subject": ["old"]}, None)
    has_aliases = found.path.startswith(("/subjects/", "/compatibility/"))
    assert call.subject == ("new" if has_aliases else "old")
    assert call.query["subject"] == (["new"] if found.path.startswith("/schemas/ids/") else ["old"])
