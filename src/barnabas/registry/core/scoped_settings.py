"""Configurations and modes, and which of them holds for a subject.

A name without one has that of its context, then that of all contexts (``:.__GLOBAL:``). For the
default context, the global one is that of the context.

In Confluent's registry: `KafkaSchemaRegistry.getConfigInScope` and `getModeInScope`.
"""

from dataclasses import replace

from barnabas.registry.core.config_value import ConfigValue, merge_configs
from barnabas.registry.core.mode_value import Mode
from barnabas.registry.core.qualified_subject import DEFAULT_CONTEXT, GLOBAL_CONTEXT, QualifiedSubject
from barnabas.registry.formats.schema import CompatibilityLevel

__all__ = ["ScopedSettings"]


class ScopedSettings:
    """What is configured by name: a subject, a context, or none for the global one."""

    def __init__(self, default_level: CompatibilityLevel) -> None:
        self._default_level = default_level
        self._configs: dict[str | None, ConfigValue] = {}
        self._modes: dict[str | None, Mode] = {}

    def config(self, subject: str | None) -> ConfigValue | None:
        return self._configs.get(subject)

    def configs(self) -> dict[str | None, ConfigValue]:
        """All configurations. Not to be changed."""
        return self._configs

    def set_config(self, subject: str | None, config: ConfigValue | None) -> None:
        if config is None:
            self._configs.pop(subject, None)
        else:
            self._configs[subject] = config

    def mode(self, subject: str | None) -> Mode | None:
        return self._modes.get(subject)

    def modes(self) -> dict[str | None, Mode]:
        """All modes. Not to be changed."""
        return self._modes

    def set_mode(self, subject: str | None, mode: Mode | None) -> None:
        if mode is None:
            self._modes.pop(subject, None)
        else:
            self._modes[subject] = mode

    def own_config(self, subject: str | None) -> ConfigValue | None:
        """The configuration that is set for a name. For all contexts, that is the defaults."""
        config = self.config(subject)
        if config is not None:
            return self._with_level(config)
        is_for_all = subject is None or QualifiedSubject.parse(subject).context == GLOBAL_CONTEXT
        return self._with_level(ConfigValue()) if is_for_all else None

    def config_in_scope(self, subject: str | None) -> ConfigValue:
        """The configuration that holds for a name.

        It is its own, with some of the global one; else that of its context, of all contexts, or
        the defaults."""
        if subject is not None:
            own = self.own_config(subject)
            if own is not None:
                return merge_configs(self.own_config(None) or ConfigValue(), own)
        for name in _wider_scopes(subject):
            config = self.config(name)
            if config is not None:
                return self._with_level(config)
        return self._with_level(ConfigValue())

    def own_mode(self, subject: str | None) -> Mode | None:
        """The mode that is set for a name. For all contexts, READWRITE is the default."""
        mode = self.mode(subject)
        if mode is not None:
            return mode
        is_for_all = subject is None or QualifiedSubject.parse(subject).context == GLOBAL_CONTEXT
        return Mode.READWRITE if is_for_all else None

    def mode_in_scope(self, subject: str | None) -> Mode:
        """The mode that holds for a name: its own, its context's, that of all, or READWRITE."""
        for name in (subject, *_wider_scopes(subject)):
            mode = self.mode(name)
            if mode is not None:
                return mode
        return Mode.READWRITE

    def _with_level(self, config: ConfigValue) -> ConfigValue:
        if config.compatibility_level is not None:
            return config
        return replace(config, compatibility_level=self._default_level)


def _wider_scopes(subject: str | None) -> tuple[str | None, str]:
    """The names whose configuration or mode holds for a subject that has none."""
    named = QualifiedSubject(DEFAULT_CONTEXT, "") if subject is None else QualifiedSubject.parse(subject)
    return named.qualified_context or None, f":{GLOBAL_CONTEXT}:"
