"""The name that a certificate gives its owner.

In Kafka: DefaultKafkaPrincipalBuilder. In ZooKeeper: X509AuthenticationProvider. In
Java: X500Principal.
"""

from collections.abc import Mapping

__all__ = ["subject_name"]

_KEYWORDS = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
# RFC 2253 has no keyword for it: its value is shown as bytes, an IA5String.
_EMAIL = "1.2.840.113549.1.9.1"


def subject_name(certificate: Mapping[str, object]) -> str | None:
    """The subject as Java writes it (X500Principal.getName, RFC 2253): CN=bob,OU=unit,O=org.

    None for a subject with attributes that are not known here, so that it is never
    mistaken for another.
    """
    subject = certificate.get("subject")
    if not isinstance(subject, tuple) or not subject:
        return None
    parts = []
    for names in reversed(subject):
        values = []
        for name, value in names:
            if name == "emailAddress" and len(value) < 128:
                raw = bytes((0x16, len(value))) + value.encode("ascii", "replace")
                values.append(f"{_EMAIL}=#{raw.hex()}")
            elif name in _KEYWORDS:
                values.append(f"{_KEYWORDS[name]}={_escaped(value)}")
            else:
                return None
        parts.append("+".join(values))
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = "".join(f"\\{character}" if character in ',+"\\<>;' else character for character in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text
