"""A cluster that clients take for one of an older release of Kafka."""

import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.apis import load_handlers
from barnabas.broker.apis.releases import KAFKA_RELEASES, limit_to_release
from barnabas.client import Admin, Consumer, Producer
from barnabas.testing import Cluster
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest
from support.raw import ask, receive


def test_limits_only_rise_from_release_to_release() -> None:
    """No version goes away in a later one, and none goes below what the handlers have at least."""
    handlers = load_handlers()
    before = limit_to_release(handlers, KAFKA_RELEASES[0])
    for release in KAFKA_RELEASES[1:]:
        now = limit_to_release(handlers, release)
        assert before.keys() <= now.keys()
        assert all(before[key].max_version <= now[key].max_version for key in before)
        before = now
    assert all(handler.min_version <= handler.max_version for handler in before.values())


@pytest.mark.parametrize(
    ("release", "key", "version"),
    [
        ("2.1", ApiKey.FETCH, 10),  # zstd: KIP-110
        ("2.3.1", ApiKey.JOIN_GROUP, 5),  # static members: KIP-345
        ("2.4", ApiKey.PRODUCE, 8),  # errors by record: KIP-467
        ("2.8", ApiKey.METADATA, 11),
        ("3.1", ApiKey.FETCH, 13),  # topic ids: KIP-516
        ("3.9", ApiKey.PRODUCE, 11),
    ],
)
def test_a_release_has_its_versions(release: str, key: ApiKey, version: int) -> None:
    """Those that Kafka's proposals and its own client library of that release have."""
    assert limit_to_release(load_handlers(), release)[key].max_version == version


def test_an_api_that_came_later_is_not_there_and_those_between_brokers_are_as_ever() -> None:
    """ElectLeaders came in 2.2, IncrementalAlterConfigs in 2.3; brokers among
    themselves are of one version."""
    handlers = load_handlers()
    old = limit_to_release(handlers, "2.1")
    assert ApiKey.ELECT_LEADERS not in old
    assert ApiKey.INCREMENTAL_ALTER_CONFIGS not in old
    assert {key: each for key, each in old.items() if each.inter_broker} == {
        key: each for key, each in handlers.items() if each.inter_broker
    }


@pytest.mark.parametrize("release", ["2.0", "4.0", "new"])
def test_a_release_without_limits_is_refused(release: str) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=rf"kafka_version {release}: .* Kafka 2\.1 to 3\.9"):
        Cluster(kafka_version=release)


def test_clients_work_with_an_old_cluster_and_step_down() -> None:
    """Followers copy, groups commit, transactions end, and no client finds a version of a later
    release."""
    with Cluster(2, kafka_version="2.1") as cluster:
        cluster.create_topic("t", replication_factor=2)
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        with Producer({**settings, "acks": "all", "enable.idempotence": "true"}) as producer:
            producer.send("t", "espresso").result(60)
        with Producer({**settings, "transactional.id": "pay"}) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", "tip")
        with Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["t"])
            record = next(iter(consumer))
            assert record.value == "espresso"
            consumer.commit()
        with Admin(settings) as admin:
            assert list(admin.group_offsets("g").values()) == [1]
            assert admin.connection.negotiated(MetadataRequest) == 7
            assert admin.list_groups()[0].group_id == "g"
        port = int(cluster.bootstrap_servers.split(",")[0].rpartition(":")[2])
        with pytest.raises(ConnectionError):
            ask(port, MetadataRequest(topics=[]), 8)
        assert step_down(port) == 2


def step_down(port: int) -> int:
    """The version of ApiVersions that the broker offers when asked in a newer one."""
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        request = ApiVersionsRequest(client_software_name="new", client_software_version="1")
        connection.sendall(b"".join(bytes(part) for part in encode_request(request, 3, 1, "raw")))
        frame = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
    header = decode_response_header(frame, ApiKey.API_VERSIONS, 0)
    response = decode(ApiVersionsResponse, 0, memoryview(frame), header.body_offset)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    return next(each.max_version for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS)


def test_the_mark_takes_a_release_and_names_the_options_that_it_has_not(tmp_path: Path) -> None:
    """An option that does nothing would be taken for protection that is there."""
    (tmp_path / "test_user.py").write_text(
        """
import pytest
from barnabas.client import Admin

@pytest.mark.barnabas(kafka_version="2.2")
def test_old(barnabas_cluster):
    with Admin({"bootstrap.servers": barnabas_cluster.bootstrap_servers}) as admin:
        admin.create_topic("t")

@pytest.mark.barnabas(tls=True)
def test_secured(barnabas_cluster):
    pass

@pytest.mark.barnabas(kafka_verison="2.2")
def test_misspelt(barnabas_cluster):
    pass
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert "1 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert 'has no option tls; security="SASL_SSL" secures a cluster' in done.stdout
    assert "has no option kafka_verison; did you mean kafka_version?" in done.stdout


def test_settings_that_ask_for_protection_end_the_start() -> None:
    """The cluster does not pretend to have it."""
    with pytest.raises(ConfigError, match="no listener SSL"):
        Cluster(settings={"security.inter.broker.protocol": "SSL"}).start()
