"""Reads and writes JSON as the registry stores it: compact, in the order of the source.

In Confluent's registry: `JacksonMapper`.
"""

import json
import math

from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["read_json", "sorted_keys", "write_json"]


def read_json(text: str) -> object:
    """The value of a JSON text. Raises InvalidSchemaError with the place of what is wrong."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        text.encode()
    except InvalidSchemaError:
        raise
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


def sorted_keys(value: object) -> object:
    """The same value with the keys of all objects in order. Raises InvalidSchemaError."""
    try:
        return _sorted(value)
    except RecursionError as error:
        raise InvalidSchemaError("the schema nests too deeply") from error


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value


def _refuse_constant(name: str) -> object:
    raise InvalidSchemaError(f"not JSON: {name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidSchemaError(f"not JSON: the number {text[:40]} is too large")
    return number
