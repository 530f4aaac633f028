"""From the settings to the rules of access: which schemes there are, who is the super user, what clients must prove.

In ZooKeeper: ProviderRegistry, AuthenticationHelper and the static fields of DigestAuthenticationProvider.
"""

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.coordination.core.access import AccessRules
from barnabas.coordination.server.access_settings import hash_name

__all__ = ["access_rules"]


def access_rules(settings: Values) -> AccessRules:
    """The rules. Raises `ConfigError` where clients could never fulfil them."""
    schemes = {"ip"}
    if settings["DigestAuthenticationProvider.enabled"]:
        schemes.add("digest")
    return AccessRules(
        schemes=frozenset(schemes),
        required_schemes=_required_schemes(settings, schemes),
        digest_algorithm=hash_name(settings["DigestAuthenticationProvider.digestAlg"]),
        super_digest=settings["DigestAuthenticationProvider.superDigest"].strip(),
        skip_acl=settings["skipACL"] == "yes",
    )


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
