"""Configurations of subjects, contexts and all: ``/config``.

In Confluent's registry: `ConfigResource`.
"""

from barnabas.registry.core.batch import BatchOfRecords
from barnabas.registry.core.config_value import ConfigValue, InvalidLevelError
from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.core.json_values import ShapeError
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import is_valid_subject
from barnabas.registry.core.requests import checked, refused_body
from barnabas.registry.core.scopes import scope_of
from barnabas.registry.core.versions import read_only, subject_not_found
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = ["Configs"]


class Configs:
    """Reads, merges and deletes configurations. No subject means the global one."""

    def __init__(self, parts: RegistryParts) -> None:
        self._parts = parts
        self._state = parts.state

    def get(self, subject: str | None = None, *, default_to_global: bool = False) -> dict[str, Answer]:
        """GET /config and /config/{subject}."""
        scope = scope_of(subject)
        config = (
            self._parts.scoped.config_in_scope(scope) if default_to_global else self._parts.scoped.own_config(scope)
        )
        if config is None:
            raise RegistryError(
                ErrorCode.SUBJECT_COMPATIBILITY_NOT_CONFIGURED,
                f"Subject '{scope}' does not have subject-level compatibility configured",
            )
        return config.to_json()

    def update(self, subject: str | None, body: object) -> Decision:
        """PUT /config and /config/{subject} with a decoded body; the answer is the merged one."""
        scope = scope_of(subject)
        old = self._state.scoped.config(scope) or ConfigValue()
        try:
            config = old.update(body)
        except InvalidLevelError:
            raise RegistryError(
                ErrorCode.INVALID_COMPATIBILITY_LEVEL,
                "Invalid compatibility level. Valid values are none, backward, forward, full, "
                "backward_transitive, forward_transitive, and full_transitive",
            ) from None
        except ShapeError as error:
            raise refused_body(error) from None
        checked(config.default_rule_set)
        checked(config.override_rule_set)
        if scope is not None and not is_valid_subject(scope, for_schemas=False):
            raise RegistryError(ErrorCode.INVALID_SUBJECT, f"The specified subject '{scope}' is not a valid.")
        if self._parts.scoped.mode_in_scope(scope).is_read_only:
            raise read_only(scope)
        batch = BatchOfRecords(self._state)
        batch.put_config(scope, config)
        return batch.decision(config.to_request_json)

    def delete(self, subject: str | None = None) -> Decision:
        """DELETE /config and /config/{subject}; the answer is what was set."""
        scope = scope_of(subject)
        config = self._parts.scoped.own_config(scope)
        if config is None:
            raise subject_not_found(str(scope))
        if self._parts.scoped.mode_in_scope(scope).is_read_only:
            raise read_only(scope)
        batch = BatchOfRecords(self._state)
        if self._state.scoped.config(scope) is not None:
            batch.delete_config(scope)
        return batch.decision(config.to_json)
