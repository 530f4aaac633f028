"""How Protobuf derives names from names.

In Confluent's registry: `ProtobufSchema.toJsonName` and its like.
"""

__all__ = ["default_json_name", "map_entry_name"]


def default_json_name(name: str) -> str:
    """The name of a field in JSON: a letter that follows an underscore becomes a capital."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def map_entry_name(name: str) -> str:
    """The name of the message that stands for the entries of a map."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
