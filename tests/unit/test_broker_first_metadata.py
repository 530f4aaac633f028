"""What a broker that has just opened its listener says of a cluster that it does not know yet."""

from pathlib import Path

import pytest

from barnabas.wire.kafka.messages.metadata import MetadataRequest
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from support.broker import DataPath


@pytest.fixture
def broker(tmp_path: Path) -> DataPath:
    """A node with the two APIs, and no news yet."""
    path = DataPath(tmp_path)
    path.serve(("metadata", "update_metadata"))
    return path


def test_metadata_waits_for_the_controllers_first_update(broker: DataPath) -> None:
    """librdkafka takes an answer without brokers for a partial one and does not ask again for minutes."""
    client, controller = broker.connect(), broker.connect()
    client.post(MetadataRequest(topics=[]), 12)
    assert client.answer() is None
    end = UpdateMetadataEndpoint(port=9092, host="here", listener="PLAINTEXT")
    live = [UpdateMetadataBroker(id=0, endpoints=[end])]
    controller.ask(UpdateMetadataRequest(controller_id=0, controller_epoch=1, live_brokers=live), 8)
    answer = client.answer()
    assert (answer.controller_id, [each.node_id for each in answer.brokers]) == (0, [0])
    assert client.ask(MetadataRequest(topics=[]), 12).controller_id == 0


def test_metadata_is_answered_after_a_while_even_without_news(broker: DataPath) -> None:
    """A broker that no controller reaches says what it knows: nothing."""
    client = broker.connect()
    client.post(MetadataRequest(topics=[]), 12)
    broker.timers.advance(10_000)
    assert client.answer().brokers == []
