"""The consumer instances of one login at the cluster: made, found, and ended when not used.

In Kafka: `KafkaConsumer`. In Confluent's proxy: KafkaConsumerManager.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.client.errors import ClientError
from barnabas.rest.clients.consumer_instance import ConsumerInstance
from barnabas.rest.clients.schema_codecs import SchemaCodecs
from barnabas.rest.core.instances import InstanceConfig, InstanceTable
from barnabas.rest.core.read_requests import value_text_of
from barnabas.rest.core.settings import RestSettings
from barnabas.rest.errors import RestCode, RestError

__all__ = ["ConsumerInstances"]

logger = logging.getLogger("barnabas.rest")

_LOOKS = 4  # at instances that may be over, within the time of one
_MOST_LOOK_S = 5.0


class ConsumerInstances:
    """The instances by group and name."""

    def __init__(self, settings: RestSettings, schemas: SchemaCodecs) -> None:
        self._settings, self._schemas = settings, schemas
        self._loop = asyncio.get_running_loop()
        self._timeout_s = settings.seconds("consumer.instance.timeout.ms")
        self._table: InstanceTable[ConsumerInstance] = InstanceTable(
            settings["consumer.instance.timeout.ms"], settings["consumer.instances.max"]
        )
        self._expiring = self._loop.create_task(self._expire())

    def __len__(self) -> int:
        return len(self._table)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(min(_MOST_LOOK_S, self._timeout_s / _LOOKS))
            for instance in self._table.expire(self._now_ms()):
                logger.info("The consumer instance %s of group %s ends: it was not used", instance.name, instance.group)
                await _close(instance)

    async def create(self, group: str, config: InstanceConfig) -> str:
        """Make an instance; returns its name. Raises `RestError`."""
        server_id = self._settings["id"]
        name = config.name or f"rest-consumer-{f'{server_id}-' if server_id else ''}{uuid.uuid4()}"
        self._table.check_room(group, name)
        try:
            instance = await asyncio.to_thread(self._made, group, name, config)
        except ClientError as error:
            raise RestError(RestCode.INVALID_CONSUMER_CONFIG, f"Invalid consumer configuration: {error}") from error
        try:
            self._table.add(group, name, instance, self._now_ms())
        except RestError:  # another request was faster
            await _close(instance)
            raise
        return name

    def _made(self, group: str, name: str, config: InstanceConfig) -> ConsumerInstance:
        schemas, form = self._schemas, config.format
        text = value_text_of(form, (lambda data: schemas.decode(form, data)) if form.has_schema else None)
        return ConsumerInstance(group, name, config, self._settings.clients["consumer"], text)

    @asynccontextmanager
    async def using(self, group: str, name: str) -> AsyncIterator[ConsumerInstance]:
        """An instance that does not end meanwhile. Raises `RestError`."""
        instance = self._table.begin_use(group, name)
        try:
            yield instance
        finally:
            self._table.end_use(group, name, self._now_ms())

    async def remove(self, group: str, name: str) -> None:
        """End an instance. Raises `RestError`."""
        await _close(self._table.remove(group, name))

    async def close(self) -> None:
        """End all instances."""
        self._expiring.cancel()
        await asyncio.gather(*(_close(instance) for instance in self._table.clear()))


async def _close(instance: ConsumerInstance) -> None:
    try:
        await instance.close()
    except ClientError as error:
        logger.warning("The consumer instance %s of group %s: %s", instance.name, instance.group, error)
