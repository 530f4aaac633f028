"""Values of properties that stand elsewhere: in a file, a folder, the environment or the keyring.

A file of properties can then be shown, copied and kept with a program's sources:

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    sasl.username=${env:KAFKA_USER}
    sasl.password=${file:/run/secrets/kafka.properties:password}

A variable is ``${PROVIDER:KEY}`` or ``${PROVIDER:PATH:KEY}``, anywhere in a value. One whose
provider is not named in ``config.providers`` stays as it is. Java's clients read the same lines,
but for the provider `KEYRING`, which is ours: its path is a service of the keyring, its key a name.
A variable without a value is an error here; Java's clients take its own text for the value.

In Kafka: `ConfigTransformer`, `FileConfigProvider`, `DirectoryConfigProvider`,
`EnvVarConfigProvider` (KIP-297, KIP-421, KIP-632, KIP-887, KIP-993).
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from barnabas.base.hints import did_you_mean
from barnabas.base.installation import install_command
from barnabas.base.settings import read_properties
from barnabas.client.errors import ConfigurationError

__all__ = ["KEYRING", "PROVIDERS_PROPERTY", "resolved"]

PROVIDERS_PROPERTY = "config.providers"
KEYRING = "barnabas.KeyringConfigProvider"

V = TypeVar("V")
_PREFIX = f"{PROVIDERS_PROPERTY}."
_VARIABLE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}]*)\}")
_OF_KAFKA = "org.apache.kafka.common.config.provider."
_ALLOWED_PATHS, _ALLOWED_NAMES = "allowed.paths", "allowlist.pattern"


def resolved(properties: Mapping[str, V]) -> dict[str, V]:
    """The properties with their variables replaced, and without the providers' own properties.

    Raises `ConfigurationError` that shows no value."""
    if not any(name == PROVIDERS_PROPERTY or name.startswith(_PREFIX) for name in properties):
        return dict(properties)
    providers = _providers(properties)
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name == PROVIDERS_PROPERTY or name.startswith(_PREFIX):
            continue
        found[name] = _replaced(name, value, providers) if isinstance(value, str) else value
    return found


class _Provider:
    """Looks values up. ``parameters`` are those of its own that it knows."""

    parameters: tuple[str, ...] = ()

    def __init__(self, name: str, parameters: Mapping[str, str]) -> None:
        self.name = name
        for each in parameters:
            if each not in self.parameters:
                raise ConfigurationError(
                    f"{_PREFIX}{name}.param.{each} is not known{did_you_mean(each, self.parameters)}"
                )

    def find(self, path: str, key: str) -> str:
        """Raises `LookupError` or OSError with a text that says why there is no value."""
        raise NotImplementedError


class _Files(_Provider):
    """What files have."""

    parameters = (_ALLOWED_PATHS,)

    def __init__(self, name: str, parameters: Mapping[str, str]) -> None:
        super().__init__(name, parameters)
        allowed = parameters.get(_ALLOWED_PATHS)
        self._allowed = None if allowed is None else [Path(each.strip()) for each in allowed.split(",") if each.strip()]
        for each in self._allowed or ():
            if not each.is_absolute():
                raise ConfigurationError(f"{_PREFIX}{name}.param.{_ALLOWED_PATHS}: {each} is not an absolute path")

    def _checked(self, text: str) -> Path:
        """A path that may be read. Links are followed first: they may lead elsewhere."""
        if not text:
            raise LookupError("it names no path")
        path = Path(text).resolve()
        if self._allowed is not None and not any(path.is_relative_to(each.resolve()) for each in self._allowed):
            raise LookupError(f"{text} is not among {_PREFIX}{self.name}.param.{_ALLOWED_PATHS}")
        return path


class _FileProvider(_Files):
    """Properties of a file of properties."""

    def find(self, path: str, key: str) -> str:
        values = read_properties(self._checked(path).read_text(encoding="utf-8"))
        if key not in values:
            raise LookupError(f"{path} has no {key}")
        return values[key]


class _DirectoryProvider(_Files):
    """The contents of the files of a folder, by their names."""

    def find(self, path: str, key: str) -> str:
        folder = self._checked(path)
        file = self._checked(str(folder / key))
        if Path(key).name != key or not file.is_file():
            raise LookupError(f"{path} has no file {key}")
        return file.read_text(encoding="utf-8")


class _EnvironmentProvider(_Provider):
    """Variables of the environment."""

    parameters = (_ALLOWED_NAMES,)

    def __init__(self, name: str, parameters: Mapping[str, str]) -> None:
        super().__init__(name, parameters)
        try:
            self._allowed = re.compile(parameters.get(_ALLOWED_NAMES, ".*"))
        except re.error as error:
            raise ConfigurationError(
                f"{_PREFIX}{name}.param.{_ALLOWED_NAMES} is not a regular expression: {error}"
            ) from None

    def find(self, path: str, key: str) -> str:
        if path:
            raise LookupError("a variable of the environment has no path")
        if not self._allowed.fullmatch(key):
            raise LookupError(f"{_PREFIX}{self.name}.param.{_ALLOWED_NAMES} does not allow it")
        if key not in os.environ:
            raise LookupError(f"there is no variable {key} in the environment")
        return os.environ[key]


class _KeyringProvider(_Provider):
    """Secrets of the system's keyring, by service and name."""

    def find(self, path: str, key: str) -> str:
        try:
            import keyring
        except ImportError:
            raise LookupError(f"no keyring can be used here: {install_command('keyring')}") from None
        try:
            secret = keyring.get_password(path, key)
        except Exception as error:  # a backend may raise anything
            raise LookupError(f"the keyring cannot be read: {error}") from None
        if secret is None:
            raise LookupError(f"the keyring has no {key} of the service {path}")
        return str(secret)


_CLASSES: Mapping[str, Callable[[str, Mapping[str, str]], _Provider]] = {
    f"{_OF_KAFKA}FileConfigProvider": _FileProvider,
    f"{_OF_KAFKA}DirectoryConfigProvider": _DirectoryProvider,
    f"{_OF_KAFKA}EnvVarConfigProvider": _EnvironmentProvider,
    KEYRING: _KeyringProvider,
}


def _providers(properties: Mapping[str, object]) -> dict[str, _Provider]:
    """By their names. Raises `ConfigurationError`."""
    given = properties.get(PROVIDERS_PROPERTY, "")
    texts = given if isinstance(given, list | tuple) else str(given).split(",")
    names = [text.strip() for text in map(str, texts) if text.strip()]
    found = {}
    for name in names:
        prefix = f"{_PREFIX}{name}."
        own = {key.removeprefix(prefix): str(value) for key, value in properties.items() if key.startswith(prefix)}
        kind = own.pop("class", "").strip()
        if kind not in _CLASSES:
            raise ConfigurationError(
                f"{prefix}class={kind} is not supported{did_you_mean(kind, _CLASSES)}",
                remedy=f"it is one of {', '.join(_CLASSES)}",
            )
        parameters = {key.removeprefix("param."): value for key, value in own.items() if key.startswith("param.")}
        if len(parameters) != len(own):
            raise ConfigurationError(f"{prefix}{next(key for key in own if not key.startswith('param.'))} is not known")
        found[name] = _CLASSES[kind](name, parameters)
    for key in properties:
        if key.startswith(_PREFIX) and key.removeprefix(_PREFIX).partition(".")[0] not in found:
            raise ConfigurationError(f"{key} is given, and {PROVIDERS_PROPERTY} does not name its provider")
    return found


def _replaced(name: str, text: str, providers: Mapping[str, _Provider]) -> str:
    def value_of(variable: re.Match[str]) -> str:
        provider = providers.get(variable[1])
        if provider is None:
            return variable[0]
        try:
            return provider.find(variable[2] or "", variable[3])
        except OSError as error:
            reason = f"cannot read {error.filename}: {error.strerror}"
        except LookupError as error:
            reason = str(error.args[0])
        except ValueError:
            reason = f"{variable[2]} is not a file of properties in UTF-8"
        raise ConfigurationError(f"{name}: {variable[0]} has no value: {reason}")

    return _VARIABLE.sub(value_of, text)
