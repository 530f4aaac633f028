"""The names of configurations and modes in paths.

In Confluent's registry: `QualifiedSubject.normalize`.
"""

from barnabas.registry.core.qualified_subject import QualifiedSubject

__all__ = ["scope_of"]


def scope_of(subject: str | None) -> str | None:
    """The name under which a configuration or a mode is stored; none for the default context."""
    if subject is None:
        return None
    named = QualifiedSubject.parse(subject)
    return None if named.is_default_context else str(named)
