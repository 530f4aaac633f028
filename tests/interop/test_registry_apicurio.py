"""The same calls to Apicurio's registry, which speaks Confluent's API, and to ours: the answers are
compared. Where Apicurio's differ from what Confluent's reference says, the difference is named.

For trials (``BARNABAS_LONG``): Maven brings the application, which needs Java 17.
"""

import json
from typing import NamedTuple

import pytest

from barnabas.testing import Cluster
from support.needs import needs
from support.registries import Reply, ask
from support.registry_pairs.judges import apicurio

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "mvn")]


class Call(NamedTuple):
    """A request, and how Apicurio's answer departs from Confluent's; empty where it does not."""

    method: str
    path: str
    body: object = None
    departs: str = ""


def record(*fields: str, default: bool = True) -> dict[str, str]:
    """A body with an Avro record of these fields."""
    made = [{"name": name, "type": "string", **({"default": ""} if default else {})} for name in fields]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": made})}


A, COMPATIBILITY = "/subjects/a", "/compatibility/subjects/a/versions"
WITHOUT_DEFAULT = record("x", "z", default=False)
CALLS = (
    Call("PUT", "/config", {"compatibility": "BACKWARD"}, "it answers with compatibilityLevel"),
    Call("GET", "/config"),
    Call("GET", "/subjects"),
    Call("POST", f"{A}/versions", record("x")),
    Call("POST", f"{A}/versions", record("x")),
    Call("POST", f"{A}/versions", record("x", "y")),
    Call("POST", f"{A}/versions", WITHOUT_DEFAULT, "its code is 409"),
    Call("POST", f"{A}/versions", {"schema": "{"}),
    Call("POST", f"{A}/versions", {"schema": "{}", "schemaType": "NOPE"}, "it fails with 500"),
    Call("GET", "/subjects"),
    Call("GET", f"{A}/versions"),
    Call("GET", f"{A}/versions/1"),
    Call("GET", f"{A}/versions/9"),
    Call("GET", f"{A}/versions/x", departs="it knows no version that is no number"),
    Call("GET", "/subjects/none/versions"),
    Call("GET", f"{A}/versions/1/schema"),
    Call("GET", f"{A}/versions/1/referencedby"),
    Call("GET", "/schemas/ids/1"),
    Call("GET", "/schemas/ids/999999"),
    Call("GET", "/schemas/types", departs="another order"),
    Call("POST", A, record("x")),
    Call("POST", A, record("q")),
    Call("POST", "/subjects/none", record("q")),
    Call("POST", f"{COMPATIBILITY}/latest", WITHOUT_DEFAULT),
    Call("POST", f"{COMPATIBILITY}/1", record("x", "w")),
    Call("POST", COMPATIBILITY, record("x", "w")),
    Call("PUT", "/config/a", {"compatibility": "NONE"}, "it answers with compatibilityLevel"),
    Call("GET", "/config/a"),
    Call("PUT", "/config/a", {"compatibility": "X"}, "it fails with 500"),
    Call("DELETE", "/config/a"),
    Call("GET", "/config/a", departs="it answers with the global level"),
    Call("GET", "/config/a?defaultToGlobal=true"),
    Call("DELETE", f"{A}/versions/1"),
    Call("GET", f"{A}/versions"),
    Call("GET", f"{A}/versions?deleted=true"),
    Call("DELETE", f"{A}/versions/1?permanent=true"),
    Call("DELETE", f"{A}?permanent=true", departs="the status is 409, the code the same"),
    Call("DELETE", A),
    Call("GET", "/subjects"),
    Call("GET", "/subjects?deleted=true"),
    Call("DELETE", A),
    Call("DELETE", f"{A}?permanent=true"),
    Call("GET", "/subjects?deleted=true"),
    Call("DELETE", "/subjects/none"),
)


def is_same(ours: Reply, theirs: Reply) -> bool:
    """Whether an answer says the same in all fields that both have; words of errors are free."""
    if (ours.status, ours.code) != (theirs.status, theirs.code):
        return False
    if ours.code or not (isinstance(ours.body, dict) and isinstance(theirs.body, dict)):
        return bool(ours.code) or ours.body == theirs.body
    common = ours.body.keys() & theirs.body.keys()
    return bool(common) and all(meaning(ours.body[name]) == meaning(theirs.body[name]) for name in common)


def meaning(value: object) -> object:
    """A text that holds a schema is what it means."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def test_the_same_calls_have_the_same_answers_as_apicurios() -> None:
    """But for those that are named, and those are different indeed."""
    with Cluster(registry=True) as cluster, apicurio() as theirs:
        found = [
            (
                call,
                ask(cluster.registry.url + call.path, call.method, call.body),
                ask(theirs + call.path, call.method, call.body),
            )
            for call in CALLS
        ]
    assert [each for each in found if is_same(each[1], each[2]) == bool(each[0].departs)] == []
