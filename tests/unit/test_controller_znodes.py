"""Kafka's znodes: what we write, and what we take from others."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.znodes import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    ZnodeFormatError,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_config_change,
    decode_controller,
    decode_controller_epoch,
    decode_log_dir_event,
    decode_partition_state,
    decode_partitions,
    decode_producer_ids,
    decode_topic,
    encode_broker,
    encode_config,
    encode_partition_state,
    encode_partitions,
    encode_producer_ids,
    encode_topic,
)

# Each of these was written by Apache Kafka 3.9.1.
APACHE_BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:25092"],"jmx_port":-1,"port":25092,"host":"127.0.0.1","version":5,'
    b'"timestamp":"1795259429875"}'
)
APACHE_TOPIC = (
    b'{"partitions":{"0":[0],"1":[0]},"topic_id":"QpfsuZRHRk62U_5fSKtHug","adding_replicas":{},'
    b'"removing_replicas":{},"version":3}'
)
APACHE_STATE = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
APACHE_CONFIG = b'{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"1000"}}'


def test_what_apache_wrote_is_written_again_byte_for_byte() -> None:
    """Keys, their order, versions and forms of values."""
    broker = decode_broker(0, APACHE_BROKER, 25)
    assert broker == BrokerInfo(0, (Endpoint("127.0.0.1", 25092, "PLAINTEXT", "PLAINTEXT"),), epoch=25)
    assert encode_broker(broker, 1795259429875) == APACHE_BROKER
    topic = decode_topic("t", APACHE_TOPIC)
    assert topic.partitions == {0: ReplicaAssignment((0,)), 1: ReplicaAssignment((0,))}
    assert encode_topic(*topic) == APACHE_TOPIC
    state = decode_partition_state("state", APACHE_STATE, 4)
    assert state.leader_and_isr == LeaderAndIsr(0, 0, (0,), version=4)
    assert encode_partition_state(state.leader_and_isr, state.controller_epoch) == APACHE_STATE
    assert encode_config(decode_config("c", APACHE_CONFIG)) == APACHE_CONFIG


def test_older_versions_are_understood() -> None:
    """Brokers since 0.8, topics without ids, notes of one entity type and name."""
    old = decode_broker(1, b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1"}', 3)
    assert old.endpoints == (Endpoint("h", 9092, "PLAINTEXT", "PLAINTEXT"),)
    third = b'{"version":3,"host":null,"port":-1,"endpoints":["SSL://[::1]:9093"],"jmx_port":9,"rack":"r"}'
    assert decode_broker(1, third, 3) == BrokerInfo(1, (Endpoint("::1", 9093, "SSL", "SSL"),), "r", 9, 3)
    assert decode_topic("t", b'{"version":1,"partitions":{"7":[2,1]}}').topic_id is None
    note = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert decode_config_change("n", note) == "topics/t"
    assert decode_config("c", None) == {}


def test_a_broker_without_a_plaintext_listener_has_no_host_for_old_clients() -> None:
    """As Apache's: null and -1."""
    value = json.loads(encode_broker(BrokerInfo(1, (Endpoint("h", 1, "IN", "SSL"),), "rack"), 5))
    assert (value["host"], value["port"], value["rack"]) == (None, -1, "rack")
    assert value["listener_security_protocol_map"] == {"IN": "SSL"}


replicas = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=4).map(tuple)


@given(
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.dictionaries(
        st.integers(0, 10**6), st.builds(ReplicaAssignment, replicas, replicas, replicas), max_size=5
    ),
    isr=replicas,
    recovery=st.integers(0, 1),
)
def test_assignments_and_states_come_back_as_they_were(
    topic_id: bytes, partitions: dict[int, ReplicaAssignment], isr: tuple[int, ...], recovery: int
) -> None:
    """Reassignments and recovery included; and what is written is what json would write."""
    encoded = encode_topic(Uuid(topic_id), partitions)
    assert decode_topic("t", encoded) == TopicAssignment(Uuid(topic_id), partitions)
    assert encoded == json.dumps(json.loads(encoded), separators=(",", ":")).encode()
    assert decode_topic("t", json.dumps(json.loads(encoded), indent=1).encode()) == decode_topic("t", encoded)
    state = LeaderAndIsr(-1, 7, isr, recovery, 3)
    assert decode_partition_state("s", encode_partition_state(state, 9), 3) == (state, 9)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ('{"0":[1],"1":[2,3],"0":[4]}', {0: (4,), 1: (2, 3)}),
        ('{"0":[1], "1":[2]}', {0: (1,), 1: (2,)}),
        ('{"0":[]}', {0: ()}),
        ("null", {}),
        ('{"0":[1],}', None),
        ('{"0":[1]"1":[2]}', None),
        ('{"0":[1,,2]}', None),
        ('{"0":[01]}', None),
        ('{"0":[2147483648]}', None),
        ('{"0":[1],"1":[true]}', None),
        ('{"0":{"partitions":{"0":[1]}}}', None),
        ('{"0":[1]', None),
    ],
)
def test_partitions_are_read_as_json_has_them(partitions: str, expected: dict[int, tuple[int, ...]] | None) -> None:
    """Those in the form that controllers write are read in slices, without json, and
    mean the same."""
    data = b'{"version":3,"partitions":%b}' % partitions.encode()
    if expected is None:
        with pytest.raises(ZnodeFormatError):
            decode_topic("t", data)
    else:
        found = decode_topic("t", data).partitions
        assert {number: assignment.replicas for number, assignment in found.items()} == expected
    twice = b'{"partitions":%b,"p\\u0061rtitions":{"7":[7]}}' % partitions.encode()
    with contextlib.suppress(ZnodeFormatError):
        assert list(decode_topic("t", twice).partitions) == [7]
    other = b'{"partitions":null,"x":%b}' % data
    with contextlib.suppress(ZnodeFormatError):
        assert decode_topic("t", other).partitions == {}
    inner = b'{"version":3,"x":%b}' % data
    with contextlib.suppress(ZnodeFormatError):
        assert decode_topic("t", inner).partitions == {}


def test_sets_of_partitions_and_blocks_of_ids_come_back_as_they_were() -> None:
    """Notifications, elections, producer ids."""
    some = [TopicPartition("a", 0), TopicPartition("b", 7)]
    assert decode_partitions("p", encode_partitions(some)) == some
    block = ProducerIdBlock(1, 5000, 5999)
    assert decode_producer_ids(encode_producer_ids(block)) == block


GARBAGE = [None, b"", b"{", b"[]", b"null", b"7", b"\xff", b'{"version":"x"}', b"[" * 5000, b'{"partitions":{"x":[1]}}']
DECODERS = {
    "broker": lambda data: decode_broker(1, data, 0),
    "topic": lambda data: decode_topic("t", data),
    "state": lambda data: decode_partition_state("s", data, 0),
    "controller": decode_controller,
    "epoch": decode_controller_epoch,
    "cluster": decode_cluster_id,
    "change": lambda data: decode_config_change("n", data),
    "event": lambda data: decode_log_dir_event("e", data),
    "partitions": lambda data: decode_partitions("p", data),
    "ids": decode_producer_ids,
    "config": lambda data: decode_config("c", data),
}


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("decoder", DECODERS)
def test_garbage_is_never_more_than_a_format_error(decoder: str, data: bytes | None) -> None:
    """Any client of the ensemble can write a znode."""
    with contextlib.suppress(ZnodeFormatError):
        DECODERS[decoder](data)
