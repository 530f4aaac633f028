"""The bytes of the election port: greetings and notifications as Apache ZooKeeper's
servers send them."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.election.messages import (
    MAX_ROUND,
    Greeting,
    MalformedNotificationError,
    MessageStream,
    Notification,
    encode_greeting,
    encode_notification,
)
from barnabas.coordination.election.vote import NO_VOTE, Ballot, PeerState, Vote

CONFIGURATION = b"server.1=a:2888:3888:participant\nversion=0"
APACHE_GREETING = bytes.fromhex("ffffffffffff000000000000000000020000000f") + b"127.0.0.1:23422"
"""Captured from server 2 of an ensemble of Apache ZooKeeper 3.8.4."""
APACHE_NOTIFICATION = (
    bytes.fromhex(
        "000000b6" "00000000" "0000000000000003" "0000000000000000" "0000000000000001" "0000000000000000" "00000002"
        "0000008a"
    )
    + b"server.1=127.0.0.1:23411:23421:participant\nserver.2=127.0.0.1:23412:23422:participant\n"
    + b"server.3=127.0.0.1:23413:23423:participant\nversion=0"
)  # fmt: skip
"""Likewise: LOOKING, a vote for server 3 in round 1."""

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
notifications = st.builds(
    Notification,
    st.sampled_from(PeerState),
    st.builds(Vote, int64s, int64s, int64s),
    st.integers(0, MAX_ROUND - 1),
    st.binary(max_size=100),
)


def test_the_bytes_of_apaches_servers_are_read_and_written() -> None:
    """A captured greeting and notification, read, and written again byte for byte."""
    stream = MessageStream(expects_greeting=True)
    greeting, notification = stream.feed(APACHE_GREETING + APACHE_NOTIFICATION)
    assert greeting == Greeting(2, "127.0.0.1:23422")
    assert encode_greeting(2, "127.0.0.1:23422") == APACHE_GREETING
    assert isinstance(notification, Notification)
    assert (notification.state, notification.vote, notification.round) == (PeerState.LOOKING, Vote(0, 0, 3), 1)
    assert encode_notification(notification) == APACHE_NOTIFICATION
    assert not stream.is_amid_message


@given(st.lists(notifications, max_size=5), st.lists(st.integers(1, 50), min_size=1))
def test_messages_arrive_whole_however_the_bytes_are_cut(sent: list[Notification], cuts: list[int]) -> None:
    """What is written is read, whatever pieces the network makes of it."""
    data = encode_greeting(7, "zoo7:3888") + b"".join(map(encode_notification, sent))
    stream = MessageStream(expects_greeting=True)
    got: list[object] = []
    position = 0
    while position < len(data):
        size = cuts[len(got) % len(cuts)]
        got += stream.feed(data[position : position + size])
        position += size
    assert got == [Greeting(7, "zoo7:3888"), *sent]


@pytest.mark.parametrize("old", [28, 40])
def test_older_formats_of_a_notification_are_read(old: int) -> None:
    """Without the peer epoch it is that of the zxid; without a configuration there is none."""
    zxid = (5 << 32) + 9
    body = struct.pack(">iqqqqi", 2, 3, zxid, 4, 6, 1)[:old]
    (notification,) = MessageStream(expects_greeting=False).feed(struct.pack(">i", old) + body)
    epoch, version = (5, 0) if old == 28 else (6, 1)
    assert notification == Notification(PeerState.LEADING, Vote(epoch, zxid, 3), 4, b"", version)


def test_a_newer_format_may_have_more_after_the_configuration() -> None:
    """What a later version adds is skipped."""
    head = struct.pack(">iqqqqii", 0, 3, 1, 1, 0, 3, 4) + b"conf" + b"more"
    (notification,) = MessageStream(expects_greeting=False).feed(struct.pack(">i", len(head)) + head)
    assert isinstance(notification, Notification)
    assert notification.configuration == b"conf"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x00",
        b"\xff\xff\xff\xff\xff\xff\x00\x02",
        b"srvr",
        struct.pack(">qqi", -65536, -1, 5),
        struct.pack(">qqi", -65536, 1, 0),
        struct.pack(">qqi", -65536, 1, -1),
        struct.pack(">qqi", -65536, 1, 2049),
        struct.pack(">qqi", -65536, 1, 2**31 - 1),
        struct.pack(">qqi", -65536, 1, 3) + b"\xff\xfe\xfd",
    ],
)
def test_a_greeting_that_is_none_is_refused_at_its_first_wrong_byte(data: bytes) -> None:
    """Other protocols, impossible ids and lengths."""
    with pytest.raises(MalformedNotificationError):
        MessageStream(expects_greeting=True).feed(data)


def _notification(
    state: int = 0, round_number: int = 1, version: int = 2, size: int = 4, text: bytes = b"conf"
) -> bytes:
    body = struct.pack(">iqqqqii", state, 1, 0, round_number, 0, version, size) + text
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        *(struct.pack(">i", length) for length in (-(2**31), -1, 0, 1, 3, 27, 512 * 1024 + 1, 2**31 - 1)),
        struct.pack(">i", 30) + bytes(30),
        _notification(state=4),
        _notification(state=-1),
        _notification(round_number=-1),
        _notification(round_number=MAX_ROUND),
        _notification(round_number=2**63 - 1),
        _notification(size=3),
        _notification(size=5),
        _notification(size=-1),
        _notification(size=2**31 - 1),
        _notification(version=1),
        _notification(version=3, size=5),
        struct.pack(">i", 500_000) + struct.pack(">iqqqqii", 0, 1, 0, 1, 0, 2, 1 << 30),
    ],
)
def test_a_notification_that_lies_is_refused(data: bytes) -> None:
    """Lengths, states and rounds that no member sends; a large one already by its head."""
    with pytest.raises(MalformedNotificationError):
        MessageStream(expects_greeting=False).feed(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    """Nothing else is raised."""
    for expects_greeting in (True, False):
        with contextlib.suppress(MalformedNotificationError):
            MessageStream(expects_greeting=expects_greeting).feed(data)


def test_a_stream_keeps_no_more_than_what_has_come() -> None:
    """A length alone reserves nothing."""
    stream = MessageStream(expects_greeting=False)
    assert stream.feed(struct.pack(">i", 400_000)) == []
    assert len(stream._data) == 4
    assert stream.is_amid_message


@given(st.builds(Vote, int64s, int64s, int64s), st.builds(Vote, int64s, int64s, int64s))
def test_votes_are_ordered_by_epoch_then_zxid_then_id(one: Vote, other: Vote) -> None:
    """ZooKeeper's total order, written out."""
    expected = one.peer_epoch > other.peer_epoch or (
        one.peer_epoch == other.peer_epoch
        and (one.zxid > other.zxid or (one.zxid == other.zxid and one.leader > other.leader))
    )
    assert (one > other) == expected
    assert one >= NO_VOTE


def test_ballots_of_members_with_a_leader_agree_by_leader_and_epoch() -> None:
    """Their rounds and zxids differ when they were elected at different times; those of a
    server that looks must not."""
    leading = Ballot(Vote(3, 8, 1), 5, PeerState.LEADING)
    following = Ballot(Vote(3, 9, 1), 6, PeerState.FOLLOWING)
    looking = Ballot(Vote(3, 8, 1), 5, PeerState.LOOKING)
    assert leading.agrees_with(following)
    assert leading.agrees_with(looking)
    assert not following.agrees_with(looking)
    assert not leading.agrees_with(Ballot(Vote(4, 8, 1), 5, PeerState.FOLLOWING))
    old = Ballot(Vote(9, 8, 1), 5, PeerState.FOLLOWING, has_epoch=False)
    assert leading.agrees_with(old)
