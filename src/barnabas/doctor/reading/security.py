"""Reads certificates, by TLS handshakes that verify nothing, and access control lists.

In Kafka: what ``openssl s_client`` shows of a listener; `Admin.describeAcls`.
"""

import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.network import ALL_ADDRESSES
from barnabas.client.admin.acls import AclFilter, describe_acls
from barnabas.client.errors import RefusedError
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.sockets import open_socket
from barnabas.doctor.evidence.cluster import BrokersPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.listeners import listeners_of
from barnabas.doctor.evidence.part import Absent, Gap, Why
from barnabas.doctor.evidence.security import AclsPart, CertificatesPart, CertificateView, ShownChain
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, reads
from barnabas.security.certificates import read_certificate
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["read_acls", "read_certificates"]

_HANDSHAKE_S = 1.0
_MAX_THREADS = 32


class _Place(NamedTuple):
    """A listener with TLS."""

    server: str
    listener: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@reads()
def read_certificates(reading: ClusterReading) -> CertificatesPart:
    """The chain of each listener with TLS that brokers have."""
    places = _listeners(reading)
    unknown = reading.require(BrokerConfigsPart).gaps
    if not places:
        return CertificatesPart(chains=(), gaps=unknown)
    deadline = reading.deadline(_HANDSHAKE_S)
    with ThreadPoolExecutor(min(len(places), _MAX_THREADS)) as pool:
        found = list(pool.map(lambda place: _chain(place, deadline), places))
    gaps = tuple(
        Gap(f"{place.listener} of {place.server}", each)
        for place, each in zip(places, found, strict=True)
        if isinstance(each, Absent)
    )
    return CertificatesPart(chains=tuple(each for each in found if not isinstance(each, Absent)), gaps=unknown + gaps)


def _listeners(reading: ClusterReading) -> list[_Place]:
    """The listeners of the brokers' properties."""
    views = reading.require(BrokersPart).views
    return [
        _Place(f"broker {broker_id}", each.name, host, port)
        for broker_id, entries in reading.require(BrokerConfigsPart).entries.items()
        for each in listeners_of(entries)
        if each.has_tls
        for host, port in [
            (
                views[broker_id].host if each.host in ALL_ADDRESSES else each.host,
                each.port or views[broker_id].port,
            )
        ]
    ]


def _chain(place: _Place, deadline: Deadline) -> ShownChain | Absent:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent but the handshake, and one that ended is to be seen
    try:
        with open_socket((place.host, place.port), deadline) as plain:
            plain.settimeout(deadline.left_s(at_least=0.01))
            with context.wrap_socket(plain, server_hostname=place.host) as shown:
                certificates = _shown(shown)
        fields = [read_certificate(each) for each in certificates]
    except (OSError, CorruptDataError) as error:
        return Absent(Why.UNREACHABLE, f"no TLS handshake with {place.address}: {error}")
    chain = tuple(CertificateView(each.subject, each.not_before_ms, each.not_after_ms) for each in fields)
    return ShownChain(place.server, place.address, place.listener, chain)


def _shown(shown: ssl.SSLSocket) -> list[bytes]:
    """The certificates in DER. Python shows the whole chain from 3.13 on, and before that by an
    attribute that is not public; without it, only the server's own is seen."""
    own = shown.getpeercert(binary_form=True)
    chain: Any = getattr(shown, "get_unverified_chain", None) or getattr(
        getattr(shown, "_sslobj", None), "get_unverified_chain", None
    )
    if chain is not None:
        return [each if isinstance(each, bytes) else ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in chain()]
    return [own] if own else []


@reads(right="Describe on the cluster")
def read_acls(reading: ClusterReading) -> AclsPart:
    """All entries; absent where brokers have no authorizer."""
    try:
        return AclsPart(entries=tuple(describe_acls(reading.connection, AclFilter())))
    except RefusedError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise UnreadError(Why.UNSUPPORTED, "the brokers have no authorizer, and so no ACLs") from None
        raise
