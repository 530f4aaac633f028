"""Where a context's secrets are kept: in the keyring of the system where there is one, or
in the file of contexts.

The library ``keyring`` (the extra ``keyring``) chooses the backend: Secret Service, macOS's
Keychain, Windows' Credential Locker, or the one that ``PYTHON_KEYRING_BACKEND`` names. It is
imported when a context has a secret, and not before. A backend counts as there when it gives
back what was put into it.
"""

from types import ModuleType

from barnabas.base.errors import BarnabasError

__all__ = ["SECRETS", "Keyring", "open_keyring"]

SECRETS = frozenset(
    (
        *("sasl.password", "sasl.jaas.config", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"),
        *("ssl.key.password", "ssl.key.pem", "ssl.keystore.key", "ssl.keystore.password", "ssl.truststore.password"),
    )
)
"""The properties whose values are never shown, and kept in the keyring."""


class Keyring:
    """The system's keyring: each property of each context under a name of its own.

    ``service`` is a context's: `Context.service`. A secret belongs to one entry of one file of
    contexts; another context of the same name, of another file or added later, has another service.
    """

    def __init__(self, library: ModuleType) -> None:
        self._library = library
        # Backends may raise any of these.
        self._errors = (library.errors.KeyringError, OSError, RuntimeError, ValueError)

    @property
    def name(self) -> str:
        """The backend's."""
        return str(self._library.get_keyring().name)

    def keep(self, service: str, name: str, secret: str) -> bool:
        """Whether the backend took a secret, and gives it back."""
        try:
            self._library.set_password(service, name, secret)
            if self._library.get_password(service, name) == secret:
                return True
        except self._errors:
            return False
        self.forget(service, name)
        return False

    def find(self, context: str, service: str, name: str) -> str:
        """A secret. Raises `BarnabasError` that says how to give it again."""
        try:
            secret = self._library.get_password(service, name)
        except self._errors as error:
            raise BarnabasError(
                f"{name} of context {context} cannot be read from the keyring {self.name}: {error}"
            ) from None
        if secret is None:
            raise BarnabasError(
                f"the keyring {self.name} has no {name} of context {context}: give it again with barnabas context add"
            )
        return str(secret)

    def forget(self, service: str, name: str) -> None:
        """Remove a secret, if it is there."""
        try:
            self._library.delete_password(service, name)
        except self._errors:
            return


def open_keyring() -> Keyring | None:
    """The keyring, or None where the library is not installed, or has no backend."""
    try:
        import keyring
        import keyring.errors
        from keyring.backends import fail, null
    except ImportError:
        return None
    try:
        backend = keyring.get_keyring()
    except Exception:  # a backend that is named and cannot be loaded, in any way
        return None
    return None if isinstance(backend, fail.Keyring | null.Keyring) else Keyring(keyring)
