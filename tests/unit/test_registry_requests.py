"""How the registry reads a request's headers, query and path, and words an error."""

import json

import pytest

from barnabas.registry.http.content import (
    DEFAULT_TYPE,
    HttpError,
    answer_type,
    check_content_type,
    error_body,
    json_body,
    read_body,
)
from barnabas.registry.http.operations import OPERATIONS, Call
from barnabas.registry.http.rights import topic_of_subject


class TestContent:
    @pytest.mark.parametrize(
        ("accept", "expected"),
        [
            (None, DEFAULT_TYPE),
            ("", DEFAULT_TYPE),
            ("*/*", DEFAULT_TYPE),
            ("application/json", "application/json"),
            ("text/html, application/json;q=0.1", "application/json"),
            ("application/json;q=0.5, application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
            ("application/*;q=x, */*;q=0.2", DEFAULT_TYPE),
        ],
    )
    def test_answer_has_the_type_that_is_preferred(self, accept: str | None, expected: str) -> None:
        """Of those that the API has."""
        assert answer_type(accept) == expected

    @pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "," * 10_000 + "application/json"])
    def test_type_that_the_api_does_not_have_is_406(self, accept: str) -> None:
        """A header that is a list without an end is none either."""
        with pytest.raises(HttpError) as refused:
            answer_type(accept)
        assert refused.value.status == 406

    def test_body_is_json_under_each_of_the_names(self) -> None:
        """And without a name."""
        for name in (None, DEFAULT_TYPE, "application/json; charset=utf-8", "application/octet-stream"):
            check_content_type(name)
        with pytest.raises(HttpError) as refused:
            check_content_type("application/x-www-form-urlencoded")
        assert refused.value.status == 415

    @pytest.mark.parametrize(
        ("body", "status"), [(b"", 422), (b" ", 422), (b"{", 400), (b"\xff", 400), (b"[" * 100_000, 400)]
    )
    def test_body_that_is_no_document_is_refused(self, body: bytes, status: int) -> None:
        """Whatever is wrong with it."""
        with pytest.raises(HttpError) as refused:
            read_body(body)
        assert refused.value.status == status

    def test_error_has_confluents_form(self) -> None:
        """A code and a message."""
        assert json.loads(error_body(40401, "é")) == {"error_code": 40401, "message": "é"}
        assert json_body("\ud800") == b'"\\ud800"'


class TestCall:
    def test_query_is_read_as_java_reads_it(self) -> None:
        """What is not the word true is false."""
        call = Call({}, {"deleted": ["TRUE"], "normalize": ["yes"], "offset": ["3"], "key": ["a", "b"]})
        assert call.flag("deleted")
        assert not call.flag("normalize")
        assert not call.flag("force")
        assert call.page == {"offset": 3, "limit": -1}
        assert list(call.texts("key")) == ["a", "b"]

    @pytest.mark.parametrize("text", ["x", "1.0", "9" * 5000, "٣", "--1", "1_0", str(1 << 31)])
    def test_id_that_is_no_number_is_not_found(self, text: str) -> None:
        """As for a path that is not there."""
        with pytest.raises(HttpError) as refused:
            _ = Call({"id": text}, {}).schema_id
        assert refused.value.status == 404


class TestOperations:
    def test_each_method_of_a_path_is_there_once(self) -> None:
        """The router takes the first."""
        pairs = [(each.method, each.path) for each in OPERATIONS]
        assert len(set(pairs)) == len(pairs)

    def test_what_changes_something_is_an_operation_that_writes(self) -> None:
        """Only these go to the leader."""
        for each in OPERATIONS:
            is_question = each.method == "GET" or "compatibility" in each.path or each.path == "/subjects/{subject}"
            assert each.right.writes == (not is_question or each.method == "DELETE"), each


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "orders"),
        ("orders-key", "orders"),
        (":.sales:orders-value", "orders"),
        ("com.example.Order", "com.example.Order"),
        ("-value", "-value"),
        ("a-value-key", "a-value"),
        (":.:x", "x"),
    ],
)
def test_subject_is_protected_as_its_topic(subject: str, topic: str) -> None:
    """The context and the part of the record are not of the topic's name."""
    assert topic_of_subject(subject) == topic
