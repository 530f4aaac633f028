"""The answers that the table of pairs of schemas has of Apache's Avro are those of its library."""

import json

import pytest

from support.needs import needs
from support.registry_pairs.judges import ANSWERS, ask_apache
from support.registry_pairs.table import all_pairs

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java")]


def test_the_recorded_answers_are_those_of_apaches_library() -> None:
    """Every pair of Avro, in one JVM, with the version that PySpark brings."""
    pairs = [pair for pair in all_pairs() if pair.schema_type == "AVRO"]
    kept = json.loads(ANSWERS.read_text())
    assert [kept[pair.name]["apache"] for pair in pairs] == ask_apache(pairs)
