"""A broker's presence in the coordination service: the cluster's id, the permanent znodes, and its own ephemeral one.

A broker is alive as long as ``/brokers/ids/ID`` exists, which is bound to its session. The znode's czxid is the broker
epoch (KIP-380): each registration gets a higher one, so news of an earlier life can be told from that of this one.

After a crash the znode of the dead process stays until its session times out. A broker that starts again does not wait
for that: a registration under its own id *with its own advertised endpoints*, on which it listens at this moment, can
only be that of its dead predecessor, and is replaced (but see `boot`). One with other endpoints belongs to another
broker.
"""

import logging

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import uuid_text
from barnabas.base.randomness import Random, random_uuid
from barnabas.broker.cluster.znodes import (
    CLUSTER_ID,
    CONTROLLER,
    TOP_LEVEL_PATHS,
    BrokerInfo,
    ZnodeFormatError,
    broker_path,
    decode_broker,
    decode_cluster_id,
    decode_controller,
    encode_broker,
    encode_cluster_id,
)
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import create, delete
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["BrokerIdTakenError", "Registration", "ensure_cluster_id", "ensure_top_level_paths"]

logger = logging.getLogger(__name__)


class BrokerIdTakenError(BarnabasError):
    """Another live broker has this broker's id."""


async def ensure_top_level_paths(client: CoordinationClient) -> None:
    """Make the permanent znodes, those that are missing, in one round trip."""
    paths: dict[str, None] = {}
    for path in TOP_LEVEL_PATHS:
        names = path.split("/")
        paths.update(dict.fromkeys("/".join(names[: n + 1]) for n in range(1, len(names))))
    for result in await client.batch([create(path) for path in paths], retry=True):
        if isinstance(result, KeeperError) and result.code is not ErrorCode.NODE_EXISTS:
            raise result


async def ensure_cluster_id(client: CoordinationClient, rng: Random) -> str:
    """The cluster's id; the first broker of all draws it."""
    await client.ensure_path("/cluster")
    made = uuid_text(random_uuid(rng))
    try:
        await client.run(create(CLUSTER_ID, encode_cluster_id(made)), retry=True)
    except KeeperError as error:
        if error.code is not ErrorCode.NODE_EXISTS:
            raise
    data, _ = await client.get(CLUSTER_ID)
    return decode_cluster_id(data)


class Registration:
    """This broker's znode, made anew after every lost session."""

    def __init__(self, client: CoordinationClient, info: BrokerInfo, clock: Clock) -> None:
        self._client = client
        self._info = info
        self._clock = clock

    @property
    def info(self) -> BrokerInfo:
        """What was registered last, with the epoch (-1 before the first time)."""
        return self._info

    async def is_there(self) -> bool:
        """Whether a registration stands under this broker's id, be it an earlier life's."""
        return await self._client.exists(broker_path(self._info.id)) is not None

    async def register(self) -> int:
        """Make the znode; returns the broker epoch. Raises `BrokerIdTakenError`."""
        path = broker_path(self._info.id)
        while True:
            data = encode_broker(self._info, self._clock.wall_ms())
            try:
                stat = await self._client.create_own_ephemeral(path, data)
                break
            except KeeperError as error:
                if error.code is not ErrorCode.NODE_EXISTS:
                    raise
            await self._remove_predecessor(path)
        self._info = BrokerInfo(
            self._info.id, self._info.endpoints, self._info.rack, self._info.jmx_port, stat.czxid, self._info.features
        )
        logger.info("Broker %d is registered with epoch %d", self._info.id, stat.czxid)
        return stat.czxid

    async def update(self, info: BrokerInfo) -> None:
        """Tell of new endpoints or features, under the same epoch."""
        await self._client.set_data(broker_path(info.id), encode_broker(info, self._clock.wall_ms()))
        self._info = BrokerInfo(info.id, info.endpoints, info.rack, info.jmx_port, self._info.epoch, info.features)

    async def _remove_predecessor(self, path: str) -> None:
        try:
            data, stat = await self._client.get(path)
        except KeeperError as error:
            if error.code is ErrorCode.NO_NODE:
                return
            raise
        try:
            found = decode_broker(self._info.id, data, stat.czxid)
        except ZnodeFormatError:
            found = BrokerInfo(self._info.id, ())
        if set(found.endpoints) != set(self._info.endpoints):
            where = ", ".join(endpoint.text() for endpoint in found.endpoints)
            raise BrokerIdTakenError(
                f"Broker id {self._info.id} is taken by the broker at {where or 'an unknown address'}. Give this broker "
                f"another broker.id, or stop the other one and wait until its session ends."
            )
        logger.info("Replacing the registration that broker %d left in an earlier life", self._info.id)
        await self._remove_stale_controller(stat.ephemeral_owner)
        (gone,) = await self._client.batch([delete(path, stat.version)], retry=True)
        if gone is not None and gone.code not in (ErrorCode.NO_NODE, ErrorCode.BAD_VERSION):
            raise gone

    async def _remove_stale_controller(self, session_id: int) -> None:
        """The dead process was perhaps controller too, in the same session."""
        try:
            data, stat = await self._client.get(CONTROLLER)
        except KeeperError as error:
            if error.code is ErrorCode.NO_NODE:
                return
            raise
        if stat.ephemeral_owner == session_id and decode_controller(data) == self._info.id:
            await self._client.batch([delete(CONTROLLER, stat.version)], retry=True)
