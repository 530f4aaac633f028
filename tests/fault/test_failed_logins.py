"""A storm of failed logins: others are served, the memory and the log do not grow, and no answer
shows which users exist.

``BARNABAS_FAILED_LOGINS`` says how many. ``bench/security.py storm`` measures how long others wait.
"""

import base64
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from os import environ
from pathlib import Path

import pytest

from barnabas.client import Producer
from barnabas.testing import ProcessCluster
from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from support.raw import receive

LOGINS = int(environ.get("BARNABAS_FAILED_LOGINS", "900"))
pytestmark = [pytest.mark.fault, pytest.mark.timeout(LOGINS / 20 + 300)]
ROUNDS = 3
AT_ONCE = 60
GROWTH_MIB = 8
"""What one full arena and one buffer of the allocator are."""
SCRAM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """Two brokers that know one user."""
    with ProcessCluster(brokers=2, security="SASL_PLAINTEXT", users={"ann": "secret"}) as running:
        yield running


def ask(connection: socket.socket, message: object, version: int) -> object:
    """The response on a connection that stays."""
    connection.sendall(b"".join(bytes(part) for part in encode_request(message, version, 1, "storm")))
    frame = receive(connection, int.from_bytes(receive(connection, 4), "big"))
    header = decode_response_header(frame, message.API_KEY, version)
    return decode(api(message.API_KEY).response, version, memoryview(frame), header.body_offset)


def attempt(server: str, user: str) -> tuple[bytes, int, ErrorCode, str | None]:
    """Log in with a proof that is none: the salt, the iterations, and how it ends."""
    host, _, port = server.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        assert ask(connection, SaslHandshakeRequest(mechanism=SCRAM), 1).error_code == 0
        first = ask(connection, SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode()), 2)
        match = re.fullmatch(rb"r=(abc.+),s=(.+),i=(\d+)", first.auth_bytes)
        assert match is not None, first
        proof = base64.b64encode(bytes(32))
        final = ask(connection, SaslAuthenticateRequest(auth_bytes=b"c=biws,r=%s,p=%s" % (match[1], proof)), 2)
        assert receive(connection, 1) == b""
        return match[2], int(match[3]), ErrorCode(final.error_code), final.error_message


def test_every_broker_answers_alike_for_users_that_exist_and_for_those_that_do_not(cluster: ProcessCluster) -> None:
    """Each user has a salt of its own, the same at both brokers and each time; all end alike."""
    servers = cluster.bootstrap_servers.split(",")
    users = ("ann", "eve", "Ann", "\uff41nn")
    found = {user: {attempt(server, user) for server in (*servers, *servers)} for user in users}
    assert all(len(answers) == 1 for answers in found.values()), found
    salts, iterations, *ends = zip(*(answer for answers in found.values() for answer in answers), strict=True)
    assert len(set(salts)) == len(users)
    assert [len(set(each)) for each in (iterations, *ends)] == [1, 1, 1]
    assert ends[0][0] is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_failed_logins_leave_nothing_behind_while_others_are_served(
    cluster: ProcessCluster, record_property: Callable[[str, object], None]
) -> None:
    """From the first third on the memory does not grow; the log has a line for each reason."""
    server = cluster.bootstrap_servers.split(",")[0]
    sizes, acknowledged = [], 0
    with ThreadPoolExecutor(AT_ONCE) as pool, Producer(cluster.client_properties()) as producer:
        for _ in range(ROUNDS):
            tried = [
                pool.submit(attempt, server, "ann" if number % 2 else f"user-{number}")
                for number in range(LOGINS // ROUNDS)
            ]
            for each in tried:
                each.result()
                if acknowledged < 50 * len(sizes) + 50:
                    producer.send("steady", "value").result()
                    acknowledged += 1
            status = Path(f"/proc/{cluster.pids['0']}/status").read_text()
            sizes.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024)
    record_property("failed logins", LOGINS)
    record_property("memory after each third, MiB", "; ".join(f"{size:.1f}" for size in sizes))
    assert sizes[-1] - sizes[0] < GROWTH_MIB
    log = (cluster.data_dir / "logs" / "broker-0.log").read_text()
    lines = [line for line in log.splitlines() if "Failed authentication" in line]
    assert 0 < len(lines) <= 6 + LOGINS // 1000
    assert "user-" not in "".join(lines)
