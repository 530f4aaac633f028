"""Fields of a flow's file that name a Python function. Needs no Spark."""

from collections.abc import Callable
from typing import Any, cast

from barnabas.pipelines.flow_file.fields import SpecTable
from barnabas.pipelines.flow_file.function_files import find_function

__all__ = ["read_function"]


def read_function(table: SpecTable, name: str) -> Callable[..., Any] | None:
    """A Python function: itself, or ``file.py:name`` relative to the flow's file."""
    value = table.value(name)
    if value is None:
        return None
    if callable(value):
        return cast("Callable[..., Any]", value)
    if not isinstance(value, str) or value.count(":") != 1:
        raise table.fail(name, f'is {value!r}, but must be like "functions.py:late_flights"')
    file, _, function_name = value.partition(":")
    path = table.resolve(name, file)
    try:
        found = find_function(path, function_name, table.functions)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in text:
            text = (
                "it uses Spark while it is loaded, before there is a session. Do that inside of the step's function; of "
                '@udf("string") outside of it make @udf(StringType())'
            )
        raise table.fail(name, f"cannot load {file}: {text}") from error
    if not callable(found):
        raise table.fail(name, f"{file} has no function {function_name}")
    return cast("Callable[..., Any]", found)
