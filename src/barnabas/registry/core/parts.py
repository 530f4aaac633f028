"""What all resources work with, and what holds for a subject."""

from dataclasses import dataclass, field, replace

from .config_value import ConfigValue, merge_configs
from .mode_value import Mode
from .qualified_subject import DEFAULT_CONTEXT, GLOBAL_CONTEXT, QualifiedSubject
from .schema_parser import SchemaParser
from .settings import RegistrySettings
from .state import RegistryState

__all__ = ["Parts"]


@dataclass(slots=True)
class Parts:
    """The state, the parser of schemas, and the settings."""

    settings: RegistrySettings
    state: RegistryState = field(default_factory=RegistryState)
    parser: SchemaParser = field(init=False)

    def __post_init__(self) -> None:
        self.parser = SchemaParser(self.state, self.settings.parsed_schemas)

    def own_config(self, subject: str | None) -> ConfigValue | None:
        """The configuration that is set for a name. For all contexts, that is the defaults."""
        config = self.state.config(subject)
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
            config = self.state.config(name)
            if config is not None:
                return self._with_level(config)
        return self._with_level(ConfigValue())

    def own_mode(self, subject: str | None) -> Mode | None:
        """The mode that is set for a name. For all contexts, READWRITE is the default."""
        mode = self.state.mode(subject)
        if mode is not None:
            return mode
        is_for_all = subject is None or QualifiedSubject.parse(subject).context == GLOBAL_CONTEXT
        return Mode.READWRITE if is_for_all else None

    def mode_in_scope(self, subject: str | None) -> Mode:
        """The mode that holds for a name: its own, its context's, that of all, or READWRITE."""
        for name in (subject, *_wider_scopes(subject)):
            mode = self.state.mode(name)
            if mode is not None:
                return mode
        return Mode.READWRITE

    def _with_level(self, config: ConfigValue) -> ConfigValue:
        if config.compatibility_level is not None:
            return config
        return replace(config, compatibility_level=self.settings.compatibility_level)


def _wider_scopes(subject: str | None) -> tuple[str | None, str]:
    """The names whose configuration or mode holds for a subject that has none."""
    named = QualifiedSubject(DEFAULT_CONTEXT, "") if subject is None else QualifiedSubject.parse(subject)
    return named.qualified_context or None, f":{GLOBAL_CONTEXT}:"
