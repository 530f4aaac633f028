"""``barnabas acls --authorizer-properties``: access control lists in the coordination service,
without a broker.

Brokers that run follow the changes as those of other brokers. The connection has TLS and a user
where ``zookeeper.ssl.*`` and the like are among the properties, or in the file of
``--zk-tls-config-file``.

In Kafka: `AclCommand.AuthorizerService`, which makes an `AclAuthorizer` of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.randomness import new_random
from barnabas.broker.authorizer.acl_store import AclStore
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.cluster.steps import Steps
from barnabas.cli.connection.coordination_access import ClientAccess
from barnabas.client.admin.acl_options import acl_of_binding, binding_filter_of, binding_of_acl
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.security.acls import AclBinding

__all__ = ["AuthorizerZnodes"]

T = TypeVar("T")
_CONNECT = "zookeeper.connect"
_OWN = "authorizer."
_OWN_CONNECT = "authorizer.zookeeper.url"
_TIMEOUTS = ("authorizer.zookeeper.connection.timeout.ms", "zookeeper.connection.timeout.ms")
_IGNORED = {"zookeeper.set.acl": "false"}
"""What has no effect with this value, and is not supported with another."""
_OF_ACCESS = ("zookeeper.ssl.", "zookeeper.sasl.", "zookeeper.client", "java.security.auth.login.config")


class AuthorizerZnodes:
    """The entries in the coordination service."""

    def __init__(self, properties: Mapping[str, str], access_file: Mapping[str, str], source: str) -> None:
        """``properties`` are those of ``--authorizer-properties``, ``access_file`` those of the
        file ``source`` with TLS and SASL. Raises `ConfigError`."""
        own, access = {}, {}
        known = (_CONNECT, _OWN_CONNECT, *_TIMEOUTS, *_IGNORED)
        for name, value in properties.items():
            if name in known and value.lower() == _IGNORED.get(name, value.lower()):
                own[name] = value
            elif name.removeprefix(_OWN).startswith(_OF_ACCESS):
                access[name] = value
            else:
                raise ConfigError(
                    f"--authorizer-properties {name}={value} is not supported{did_you_mean(name, known)}; {_CONNECT}=HOST:PORT is"
                )
        servers = own.get(_OWN_CONNECT) or own.get(_CONNECT)
        if not servers:
            raise ConfigError(f"--authorizer-properties {_CONNECT}=HOST:PORT is missing")
        self._servers = servers
        timeout = next((own[name] for name in _TIMEOUTS if name in own), "10000")
        if not timeout.isdecimal():
            raise ConfigError(f"{timeout} is no number of milliseconds")
        self._timeout_ms = int(timeout)
        merged = {**_for_authorizer(access_file), **_for_authorizer(access)}
        self._access = ClientAccess(merged, source or "--authorizer-properties")

    def add(self, acls: Sequence[Acl]) -> None:
        """Raises `BarnabasError` for the first entry that cannot be added, after all were tried."""
        bindings = [binding_of_acl(acl) for acl in acls]
        for failure in self._perform(lambda store, _: store.create(bindings)):
            if isinstance(failure, BarnabasError):
                raise failure

    def remove(self, wanted: AclFilter) -> Sequence[Acl]:
        """Remove what a filter matches. Raises `BarnabasError`."""
        filters = [binding_filter_of(wanted)]
        (result,) = self._perform(lambda store, _: store.delete(filters))
        if isinstance(result.failure, BarnabasError):
            raise result.failure
        deleted = result.bindings
        for each in deleted:
            if isinstance(each.failure, BarnabasError):
                raise each.failure
        return [acl_of_binding(each.binding) for each in deleted]

    def find(self, wanted: AclFilter) -> Sequence[Acl]:
        """The entries that a filter matches."""
        bindings: list[AclBinding] = self._perform(lambda _, authorizer: authorizer.acls(binding_filter_of(wanted)))
        return [acl_of_binding(binding) for binding in bindings]

    def _perform(self, work: Callable[[AclStore, Authorizer], Steps[T]]) -> T:
        """Read all entries, then do something with them."""
        authorizer = Authorizer()
        store = AclStore(authorizer, SystemClock().wall_ms, new_random())

        def steps() -> Steps[T]:
            yield from store.load()
            return (yield from work(store, authorizer))

        return self._access.perform(self._servers, steps, timeout_ms=self._timeout_ms)


def _for_authorizer(properties: Mapping[str, str]) -> dict[str, str]:
    """Without the prefix ``authorizer.``, which is stronger than the same name without it."""
    names = sorted(properties, key=lambda name: name.startswith(_OWN))
    return {name.removeprefix(_OWN): properties[name] for name in names}
