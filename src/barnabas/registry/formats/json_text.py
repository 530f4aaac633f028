"""Reads and writes JSON as the registry stores it: compact, in the order of the source."""

import json

from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["read_json", "write_json"]


def read_json(text: str) -> object:
    """The value of a JSON text. Raises InvalidSchemaError with the place of what is wrong."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        text.encode()
    except json.JSONDecodeError as error:
        raise InvalidSchemaError(f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("not JSON: half of a surrogate pair") from error
    except RecursionError as error:
        raise InvalidSchemaError("the JSON nests too deeply") from error
    except ValueError as error:  # a number of too many digits
        raise InvalidSchemaError(f"not JSON: {error}") from error
    return value


def write_json(value: object) -> str:
    """The compact text of a JSON value; characters outside ASCII stay as they are."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except RecursionError as error:
        raise InvalidSchemaError("the schema nests too deeply") from error
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("half of a surrogate pair stands in the schema") from error
    return text


def _refuse_constant(name: str) -> object:
    raise InvalidSchemaError(f"not JSON: {name} is no number of JSON")
