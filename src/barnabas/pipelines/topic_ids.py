"""Whether topics are still those that a checkpoint has positions in (``topics.json`` beside it).

A topic that was deleted and made again has another id, though it may be longer by now than what was read of it. While a query
runs its source notices that; between two runs this file does. Brokers before Kafka 2.8 have no ids.
"""

import json
from collections.abc import Callable
from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.pipelines.errors import DataLossError
from barnabas.pipelines.kafka import KafkaCluster
from barnabas.pipelines.spec import Source

__all__ = ["TopicIds"]


class TopicIds:
    """The ids of the topics of a flow's last run."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / "topics.json"
        try:
            self._text = self._path.read_text(encoding="utf-8")
            self._known: dict[str, dict[str, str]] = json.loads(self._text)
        except (OSError, ValueError):  # the first run, or an earlier version's: there is nothing to compare with
            self._text, self._known = "", {}

    def problems(self, source: Source, cluster: KafkaCluster) -> list[str]:
        """What is to be said about each topic that is another one now. `save` keeps the ids of today."""
        topics = source.topics or sorted({each.topic for each in cluster.partitions()})
        known = self._known.setdefault(source.name, {})
        found = cluster.topic_ids(topics)
        changed = [topic for topic, topic_id in found.items() if known.get(topic, topic_id) != topic_id]
        known |= found
        return [
            f"topic {topic} was deleted and made again since the last run: the checkpoint has positions in the one before"
            for topic in changed
        ]

    def require_same(self, source: Source, cluster: KafkaCluster, file: str, say: Callable[[str], None]) -> None:
        """Raise `DataLossError` for a topic that is another one now, or say so if the source allows it."""
        for each in self.problems(source, cluster):
            if source.fail_on_data_loss:
                raise DataLossError(
                    f"{each}. Read the new one from its beginning: `barnabas pipeline rewind {file} --to earliest --yes`; or go "
                    "on where the checkpoint is: fail_on_data_loss = false"
                )
            say(f"warning: {each}")

    def save(self) -> None:
        """Keep the ids of today."""
        text = json.dumps(self._known, indent=1)
        if text != self._text:
            OsFiles().write_atomically(str(self._path), text.encode())
            self._text = text
