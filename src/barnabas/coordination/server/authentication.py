"""From the settings to the rules of access: which schemes there are, who is the super user,
what clients must prove.

In ZooKeeper: ProviderRegistry, AuthenticationHelper, SaslServerCallbackHandler and the static
fields of the providers.
"""

from collections.abc import Callable

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.coordination.core.access import AccessRules, SaslServer
from barnabas.coordination.server.access_settings import (
    AUTHENTICATION_PROVIDERS,
    hash_name,
    read_jaas,
    read_tls_options,
)
from barnabas.net.ssl_contexts import SslSettings
from barnabas.security.digest_md5 import DigestMd5Server
from barnabas.security.jaas import JAAS_FILE, digest_users, parse_jaas
from barnabas.wire.jute.records import Id

__all__ = ["access_rules", "tls_options"]

_SASL_SERVICE, _SASL_REALM = "zookeeper", "zk-sasl-md5"  # those of ZooKeeper's clients and servers


def access_rules(
    settings: Values, read_text: Callable[[str], str], random_bytes: Callable[[int], bytes]
) -> AccessRules:
    """The rules.

    ``read_text`` reads a file, and raises OSError. Raises `ConfigError` for rules
    that cannot work."""
    schemes = {"ip"} | _schemes_of_providers(settings)
    if settings["secureClientPort"] is not None:
        schemes.add("x509")
    if settings["DigestAuthenticationProvider.enabled"]:
        schemes.add("digest")
    new_sasl_server = _sasl_server(settings, read_text, random_bytes)
    if new_sasl_server is not None:
        schemes.add("sasl")
    elif "sasl" in schemes:
        raise ConfigError("authProvider names SASL, and java.security.auth.login.config names no file with its users")
    super_users = (
        Id("sasl", settings["superUser"]),
        Id("x509", settings["X509AuthenticationProvider.superUser"]),
    )
    return AccessRules(
        schemes=frozenset(schemes),
        required_schemes=_required_schemes(settings, schemes),
        digest_algorithm=hash_name(settings["DigestAuthenticationProvider.digestAlg"]),
        super_digest=settings["DigestAuthenticationProvider.superDigest"].strip(),
        super_users=frozenset(each for each in super_users if each.id),
        skip_acl=settings["skipACL"] == "yes",
        new_sasl_server=new_sasl_server,
        maintains_failed_sasl_clients=settings["allowSaslFailedClients"],
    )


def tls_options(settings: Values, read_text: Callable[[str], str]) -> SslSettings:
    """The options of the port for clients. ``read_text`` reads a file, and raises OSError. Raises
    `ConfigError`."""
    return read_tls_options(settings, "ssl", "secureClientPort is set", read_text)


def _schemes_of_providers(settings: Values) -> set[str]:
    providers = {name.lower(): scheme for name, scheme in AUTHENTICATION_PROVIDERS.items()}
    given = (text.strip().lower() for name, text in settings.texts.items() if name.startswith("authProvider."))
    return {providers[name] for name in given if name in providers} - {"digest"}


def _sasl_server(
    settings: Values, read_text: Callable[[str], str], random_bytes: Callable[[int], bytes]
) -> Callable[[], SaslServer] | None:
    path = settings[JAAS_FILE]
    if not path:
        return None
    text, section = read_jaas(settings, read_text), settings["sasl.serverconfig"]
    is_for_members = settings["quorum.auth.enableSasl"] and "sasl" not in _schemes_of_providers(settings)
    if is_for_members and section not in parse_jaas(text, path):
        return None
    users = digest_users(text, path, section)
    if settings["SASLAuthenticationProvider.superPassword"]:
        users["super"] = settings["SASLAuthenticationProvider.superPassword"].strip()
    return lambda: DigestMd5Server(users, _SASL_SERVICE, _SASL_REALM, random_bytes)


def _required_schemes(settings: Values, schemes: set[str]) -> frozenset[str]:
    required: dict[str, str] = {}
    if settings["enforce.auth.enabled"]:
        required = {scheme: "enforce.auth.schemes" for scheme in settings["enforce.auth.schemes"] if scheme}
        if not required:
            raise ConfigError(
                "enforce.auth.enabled is true: enforce.auth.schemes must name the schemes that are accepted"
            )
    if settings["requireClientAuthScheme"] not in ("", "none"):
        required[settings["requireClientAuthScheme"]] = "requireClientAuthScheme"
    if settings["sessionRequireClientSASLAuth"]:
        required = {"sasl": "sessionRequireClientSASLAuth"}
    for scheme, name in required.items():
        if scheme not in schemes:
            raise ConfigError(
                f"{name} requires clients to authenticate with the scheme {scheme}, which is not available: there are "
                f"{', '.join(sorted(schemes))}"
            )
    return frozenset(required)
