"""What may be shown of addresses and settings: no letter of a password, whatever it is."""

import json
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.redaction import Redactor, is_secret_name, redacted_address, redacted_setting, secrets_of_address

_LETTERS = st.text(string.ascii_letters + string.digits + "%@:/?#&= \\'\"[],;", min_size=1)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://db.example:5432/reports", "postgresql://db.example:5432/reports"),
        ("postgresql://ann:secret@db.example/reports", "postgresql://***@db.example/reports"),
        ("postgresql://ann:s3@cret/x@db.example/reports?a=b", "postgresql://***@db.example/reports?..."),
        ("postgresql://a:1,[::1]:2/db?password=secret", "postgresql://a:1,[::1]:2/db?..."),
        ("postgresql://ann:secret", "postgresql://ann:***"),
        ("mysql//ann:secret@host/db", "***@host/db"),
        ("ann:secret@host:9200", "***@host:9200"),
        ("//ann:secret@host", "//***@host"),
        ("host=db user=ann password=secret port=1", "host=db user=ann password=***"),
        ("http://host:8081#secret", "http://host:8081#..."),
        ("localhost:9092", "localhost:9092"),
    ],
)
def test_an_address_is_shown_without_what_may_be_a_password(address: str, shown: str) -> None:
    """Correct or not."""
    assert redacted_address(address) == shown


@given(_LETTERS, st.sampled_from(["postgresql://", "http://", "//", ""]))
def test_no_letters_of_a_password_before_the_host_are_shown(password: str, scheme: str) -> None:
    """Letters that mean something in an address may make it unreadable; they do not show it."""
    marked = f"geheim{password}geheim"
    assert "geheim" not in redacted_address(f"{scheme}ann:{marked}@host.example:5432/reports")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("sasl.password", 12345, "***"),
        ("spark.hadoop.fs.s3a.access.key", True, "***"),
        ("spark.hadoop.fs.azure.account.key.x", "abc", "***"),
        ("cores", "two", "'two'"),
        ("key", 5, "5"),
        ("url", "pg://ann:secret@host", "'pg://***@host'"),
        ("url", {"password": "x"}, "a table"),
        ("topics", ["a", 1, "http://ann:secret@host"], "['a', 1, 'http://***@host']"),
    ],
)
def test_a_setting_is_quoted_without_its_secret(name: str, value: object, shown: str) -> None:
    """Numbers can be passwords, too."""
    assert redacted_setting(name, value) == shown


@pytest.mark.parametrize(
    "name",
    [
        *(
            "sasl.password",
            "ssl.key.password",
            "sasl.jaas.config",
            "ssl.key.pem",
            "ssl.keystore.key",
            "spark.ssl.keyPassword",
        ),
        *("spark.authenticate.secret", "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.session.token"),
        *(
            "sasl.oauthbearer.client.secret",
            "basic.auth.user.info",
            "REPORTS_PASSWORD",
            "S3_SECRET",
            "API_KEY",
            "DB_PW",
            "PGPASS",
        ),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    """Those of Kafka's clients, of Spark and Hadoop, and of environment variables."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "keys",
        "url",
        "compute.passengers",
        "bypass",
        "compass",
        "sasl.username",
        "spark.sql.shuffle.partitions",
        "bypass_rate",
    ],
)
def test_other_names_are_not_taken_for_those_of_secrets(name: str) -> None:
    """Their values help to find what is wrong."""
    assert not is_secret_name(name)


def test_passwords_of_an_address_are_found_as_they_stand_there_and_as_they_are_meant() -> None:
    """A library may show either."""
    assert set(secrets_of_address("postgresql://ann:a%40b@c@host/db?sslpassword=x%20y")) == {
        *("a%40b@c", "a@b@c", "x%20y", "x y"),
    }
    assert "it's" in set(secrets_of_address(r"host=db password='it\'s' user=ann"))
    assert set(secrets_of_address("http://host:1/path")) == set()


@given(st.text(min_size=4))
def test_a_secret_is_hidden_in_the_forms_that_libraries_give_it(secret: str) -> None:
    """As it is, in an address, in JSON and as Python quotes it."""
    redactor = Redactor()
    redactor.add(secret)
    for form in (secret, quote(secret, safe=""), repr(secret)[1:-1], json.dumps(secret)[1:-1]):
        assert redactor.redact(form) == "***"


def test_of_secrets_that_overlap_nothing_is_left() -> None:
    """The longer one goes first."""
    redactor = Redactor()
    redactor.add("secret", "${A}")
    redactor.add("secret-and-more", "${B}")
    redactor.add("abc", "${SHORT}")
    assert redactor.redact("a secret-and-more, a secret, abc") == "a ${B}, a ${A}, abc"
