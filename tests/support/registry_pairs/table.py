"""The whole table."""

from support.registry_pairs.avro_pairs import avro_pairs
from support.registry_pairs.json_pairs import json_pairs
from support.registry_pairs.pair import Pair
from support.registry_pairs.protobuf_pairs import protobuf_pairs

__all__ = ["all_pairs"]


def all_pairs() -> list[Pair]:
    """All pairs of all formats; names are unique."""
    return [*avro_pairs(), *json_pairs(), *protobuf_pairs()]
