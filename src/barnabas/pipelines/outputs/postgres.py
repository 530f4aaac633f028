"""Connections to PostgreSQL, of sinks, tables and dashboards: what goes wrong is reported
without the address's password.

libpq quotes what it cannot read of an address, and psycopg what it has asked a name server for.
"""

from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.base.redaction import Redactor

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresError", "open_postgres", "postgres_reason"]


class PostgresError(BarnabasError):
    """psycopg is missing, or the address cannot be used."""


def open_postgres(url: str, **settings: Any) -> "psycopg.Connection[Any]":
    """A connection; ``settings`` are for what the address does not set.

    Raises `PostgresError` and ``psycopg.Error``."""
    try:
        import psycopg
    except ImportError as error:
        raise PostgresError(f"PostgreSQL needs psycopg: {install_command('pipelines')}") from error
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise PostgresError(
            'the url is no address that libpq can read, such as "postgresql://user@host/database"'
        ) from None
    application = {"application_name": settings.pop("application_name", "barnabas")}
    own = {name: settings.pop(name) for name in list(settings) if name == "autocommit"}
    return psycopg.connect(**{**settings, **given, **application}, **own)


def postgres_reason(error: Exception, url: str) -> str:
    """What went wrong, as one line."""
    redactor = Redactor()
    redactor.add_address(url)
    return redactor.redact(" ".join(str(error).split()).rstrip(".")) or type(error).__name__
