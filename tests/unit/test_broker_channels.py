"""Requests between brokers over real sockets: versions, order, timeouts, broken
connections, ourselves."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.base.network import Connection
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.frames import decode_request_header, encode_response
from barnabas.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

LIMIT = 1 << 20
UPDATE = 6


class Peer:
    """A broker that answers ApiVersions by itself and the rest as the test says."""

    def __init__(self, highest: int = 8) -> None:
        self.highest = highest
        self.seen: list[tuple[int, int, int]] = []
        self.connections: list[Connection] = []
        self.reply: Callable[[Connection, int, int], None] = self.answer

    def accept(self, connection: Connection) -> "Peer":
        self.connections.append(connection)
        return self

    def frame(self, data: memoryview) -> None:
        connection = self.connections[-1]
        header = decode_request_header(data)
        if header.api_key == 18:
            versions = [ApiVersion(api_key=UPDATE, min_version=5, max_version=self.highest)]
            connection.send(encode_response(ApiVersionsResponse(api_keys=versions), 3, header.correlation_id))
            return
        message = decode(api(header.api_key).request, header.api_version, data, header.body_offset)
        self.seen.append((header.api_key, header.api_version, message.controller_epoch))
        self.reply(connection, header.api_version, header.correlation_id)

    def answer(self, connection: Connection, version: int, correlation_id: int) -> None:
        connection.send(encode_response(UpdateMetadataResponse(), version, correlation_id))

    def bad_length(self, prefix: bytes) -> None:
        raise AssertionError(prefix)

    def closed(self, error: Exception | None) -> None:
        pass


def run(test: Callable[[Channels, Peer], object], highest: int = 8) -> None:
    async def main() -> None:
        network = SocketNetwork()
        peer = Peer(highest)
        listener = await network.listen("127.0.0.1", 0, peer.accept, max_frame_bytes=LIMIT)
        channels = Channels(0, network, request_timeout_ms=5000)
        channels.set_brokers({0: ("127.0.0.1", 1), 1: ("127.0.0.1", listener.port)})
        try:
            await test(channels, peer)
        finally:
            channels.close()
            for connection in peer.connections:
                connection.close()
            await listener.close()
            await asyncio.sleep(0)

    asyncio.run(main())


def update(epoch: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=0, controller_epoch=epoch)


def test_requests_go_in_the_highest_common_version_and_keep_their_order() -> None:
    """A peer of an older release is spoken to in its own version."""

    async def test(channels: Channels, peer: Peer) -> None:
        responses = await asyncio.gather(*(channels.send(1, update(epoch)) for epoch in range(5)))
        assert [response.error_code for response in responses] == [0] * 5
        assert peer.seen == [(UPDATE, 6, epoch) for epoch in range(5)]
        assert len(peer.connections) == 1

    run(test, highest=6)


def test_a_peer_without_a_common_version_is_an_error_of_its_own() -> None:
    """Nothing is sent that it could not read."""

    async def test(channels: Channels, peer: Peer) -> None:
        with pytest.raises(ChannelError, match="no version of UPDATE_METADATA"):
            await channels.send(1, update())
        assert peer.seen == []

    run(test, highest=-1)


def test_a_broken_connection_fails_what_waits_and_the_next_request_connects_again() -> None:
    """The caller repeats; the channel has no memory of the failure but a back-off."""

    async def test(channels: Channels, peer: Peer) -> None:
        peer.reply = lambda connection, version, correlation_id: connection.close()
        with pytest.raises(ChannelError, match="broke"):
            await channels.send(1, update())
        peer.reply = peer.answer
        assert (await channels.send(1, update(2))).error_code == 0
        assert len(peer.connections) == 2

    run(test)


def test_an_answer_to_something_else_breaks_the_connection() -> None:
    """After a wrong correlation id nothing on the connection can be trusted."""

    async def test(channels: Channels, peer: Peer) -> None:
        peer.reply = lambda connection, version, correlation_id: peer.answer(connection, version, correlation_id + 1)
        with pytest.raises(ChannelError, match="broke"):
            await channels.send(1, update())
        peer.reply = lambda connection, version, correlation_id: connection.send(
            [struct.pack(">ii", 4, correlation_id)]
        )
        with pytest.raises(ChannelError, match="broke"):
            await channels.send(1, update())

    run(test)


def test_a_silent_peer_times_out_and_loses_its_connection() -> None:
    """A late answer must not be taken for that of a later request."""

    async def test(channels: Channels, peer: Peer) -> None:
        # The timeout below is of the answer, not of connecting on a busy machine.
        await channels.send(1, update())
        peer.reply = lambda connection, version, correlation_id: None
        with pytest.raises(ChannelError, match="did not answer"):
            await channels.send(1, update(), timeout_ms=50)
        peer.reply = peer.answer
        assert (await channels.send(1, update())).error_code == 0
        assert len(peer.connections) == 2

    run(test)


def test_a_broker_that_is_not_known_or_not_there_cannot_be_asked() -> None:
    """Both are errors of the channel, not of the caller."""

    async def test(channels: Channels, peer: Peer) -> None:
        with pytest.raises(ChannelError, match="not known"):
            await channels.send(9, update())
        channels.set_brokers({1: ("127.0.0.1", 1)})
        with pytest.raises(ChannelError, match="cannot be reached"):
            await channels.send(1, update())

    run(test)


def test_a_channel_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    """The broker has gone meanwhile: who asked hears so, and the peer sees the connection end."""

    async def test(channels: Channels, peer: Peer) -> None:
        network, has_ended = channels._network, asyncio.Event()
        connect = network.connect

        async def slow(*arguments: Any, **options: Any) -> Connection:
            connection = await connect(*arguments, **options)
            channels.set_brokers({})
            return connection

        network.connect = slow  # type: ignore[method-assign]  # the moment between the connection and its first use
        peer.closed = lambda error: has_ended.set()  # type: ignore[method-assign]  # as above
        with pytest.raises(ChannelError, match="gone"):
            await channels.send(1, update())
        async with asyncio.timeout(30):
            await has_ended.wait()

    run(test)


def test_a_broker_asks_itself_without_a_connection() -> None:
    """The dispatcher is called directly."""

    async def test(channels: Channels, peer: Peer) -> None:
        with pytest.raises(ChannelError, match="does not serve yet"):
            await channels.send(0, update())
        channels.call_self = lambda key, message, answered: answered((key, message.controller_epoch))
        assert await channels.send(0, update(4)) == (UPDATE, 4)
        assert peer.connections == []

    run(test)


def test_a_broker_that_gives_itself_no_answer_is_as_one_that_closed_the_connection() -> None:
    """The sender tries again."""

    async def test(channels: Channels, _peer: Peer) -> None:
        channels.call_self = lambda _key, _message, answered: answered(None)
        with pytest.raises(ChannelError, match="no answer"):
            await channels.send(0, update())

    run(test)


def test_a_right_that_is_missing_is_reported_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """For each broker and request: those that send it try again and again."""

    async def test(channels: Channels, peer: Peer) -> None:
        def refuse(connection: Connection, version: int, correlation_id: int) -> None:
            response = UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            connection.send(encode_response(response, version, correlation_id))

        peer.reply = refuse
        for _ in range(3):
            assert (await channels.send(1, update())).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(test)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "Broker 1 refused UpdateMetadata: the principal of this broker needs ClusterAction on the cluster, by an ACL "
        "or as one of super.users"
    ]
