"""Our answers for pairs of schemas, held to those of others (`support/registry_pairs`)."""

import json

import pytest

from barnabas.registry.formats.avro.compatibility import find_incompatibilities
from barnabas.registry.formats.avro.schema import parse_avro
from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.schema import SchemaType
from support.registry_pairs.judges import ANSWERS
from support.registry_pairs.pair import Pair
from support.registry_pairs.table import all_pairs

PAIRS = all_pairs()
KEPT = json.loads(ANSWERS.read_text())
REFUSED = 5
"""Pairs that Apicurio fails to judge, at most."""


def _is_compatible(pair: Pair) -> bool:
    reader = parse_schema(SchemaType(pair.schema_type), pair.reader)
    return not reader.incompatibilities(parse_schema(SchemaType(pair.schema_type), pair.writer))


def test_the_table_has_an_answer_for_each_of_its_pairs() -> None:
    """At least 200 pairs, each with one name and one row of answers."""
    assert len({pair.name for pair in PAIRS}) == len(PAIRS)
    assert KEPT.keys() == {pair.name for pair in PAIRS}


@pytest.mark.parametrize("schema_type", SchemaType)
def test_a_reader_and_a_writer_are_judged_as_apicurio_judges_them(schema_type: SchemaType) -> None:
    """Except where Confluent's published rule is another one: these rows say which."""
    refused = []
    for pair in PAIRS:
        answer = KEPT[pair.name]["apicurio"]
        if pair.schema_type != schema_type:
            continue
        if isinstance(answer, str):
            refused.append(pair.name)
            continue
        if pair.ruling is not None:
            assert pair.ruling.is_compatible is not answer, f"{pair.name}: there is nothing to rule"
            answer = pair.ruling.is_compatible
        assert _is_compatible(pair) is answer, pair.name
    assert len(refused) <= REFUSED


def test_avro_is_judged_as_apaches_library_judges_it() -> None:
    """The same differences in the same order, at the same places, in the same words."""
    for pair in PAIRS:
        if pair.schema_type != "AVRO":
            continue
        answer = KEPT[pair.name]["apache"]
        reader = parse_avro(pair.reader, (), {}, is_new=True)
        writer = parse_avro(pair.writer, (), {}, is_new=True)
        ours = [list(each) for each in find_incompatibilities(reader.type, writer.type)]
        once = [list(each) for each in dict.fromkeys(map(tuple, answer["found"]))]
        assert ours == once, pair.name
        assert reader.text == answer["text"], pair.name
