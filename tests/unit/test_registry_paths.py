"""Requests that name a subject by its alias, or below a context."""

import pytest

from barnabas.registry.core import Registry
from barnabas.registry.errors import ErrorCode
from barnabas.registry.http.operations import OPERATIONS, Call, RestOperation
from support.registry_log import Instance, SchemasLog, answer_or_code


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_an_alias_is_replaced_in_subjects_and_not_in_configurations(operation: RestOperation) -> None:
    """So rights are checked for the subject that is meant; a configuration sets the alias."""
    instance = Instance(SchemasLog())
    instance.set_config("old", alias="new")
    call = Call.meant(instance.registry, operation, {"subject": "old"}, {"subject": ["old"]}, None)
    has_aliases = operation.path.startswith(("/subjects/", "/compatibility/"))
    assert call.subject == ("new" if has_aliases else "old")
    assert call.query["subject"] == (["new"] if operation.path.startswith("/schemas/ids/") else ["old"])


def operation_of(method: str, path: str) -> RestOperation:
    return next(each for each in OPERATIONS if (each.method, each.path) == (method, path))


def subject_below(context: str, path: str, **named: str) -> str:
    """The subject that a request below a context names."""
    return Call.meant(Registry(), operation_of("GET", path), {"context": context, **named}, {}, None).subject


@pytest.mark.parametrize(
    ("context", "subject"),
    [(".c", ":.c:a"), ("c", ":.c:a"), (":.c:", ":.c:a"), (".", "a"), (":.:", "a"), (":.", "a")],
)
def test_a_subject_below_a_context_is_in_that_context(context: str, subject: str) -> None:
    """The context's name may have its colons and its dot, or not."""
    assert subject_below(context, "/subjects/{subject}/versions", subject="a") == subject
    assert subject_below(context, "/config/{subject}", subject="a") == subject


def test_a_subject_below_a_context_that_names_its_own_keeps_it() -> None:
    """The context of the path is for names without one."""
    assert subject_below(".c", "/subjects/{subject}/versions", subject=":.d:a") == ":.d:a"


def test_a_configuration_below_a_context_without_a_subject_is_that_of_the_context() -> None:
    """So is the mode; below the default context it is the global one."""
    assert subject_below(".c", "/mode/{subject}") == ":.c:"
    assert subject_below(".", "/config/{subject}") == ""


def test_searches_and_ids_below_a_context_stay_in_it() -> None:
    """With a subject or a prefix, and without."""

    def query(path: str, **given: list[str]) -> dict[str, object]:
        return dict(Call.meant(Registry(), operation_of("GET", path), {"context": ".c"}, given, None).query)

    assert query("/subjects") == {"subjectPrefix": [":.c:"]}
    assert query("/schemas", subjectPrefix=["a"]) == {"subjectPrefix": [":.c:a"]}
    assert query("/schemas/ids/{id}") == {"subject": [":.c:"]}
    assert query("/schemas/ids/{id}", subject=["a"]) == {"subject": [":.c:a"]}
    assert query("/schemas/types") == {}


def test_a_context_with_a_colon_inside_is_refused() -> None:
    """The code is that of a bad request."""
    assert answer_or_code(lambda: subject_below(".a:b", "/config/{subject}")) == ErrorCode.BAD_REQUEST
