"""Whether topics are still those that a checkpoint has positions in (``topics.json`` beside it).

A position is only valid together with the topic's id: a topic that was deleted and made again has
another one, though it may be longer by now than what was read of it. While a query runs its source
notices that; between two runs this file does. Brokers before Kafka 2.8 have no ids.

    {"SOURCE": {"TOPIC": "ID"}, "made again": {"SOURCE": {"TOPIC": {"main": 7, "bad-rows": 6}}}}

A flow that may lose records goes on with the new topic's beginning. The file then says, for each of
the flow's queries, up to which micro-batch the positions are those in the topic before. The first
one that is planned after it moves them, so a flow that is killed at any moment moves them once.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas.base.files import OsFiles
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster
from barnabas.pipelines.errors import DAMAGED_ADVICE, DataLossError, PipelineError
from barnabas.pipelines.specification.spec import POSITION, Flow, Source

__all__ = ["MADE_AGAIN", "TopicIds", "bad_rows_query", "keyed_by_position"]

MADE_AGAIN = "was deleted and made again"
"""What the source says of such a topic, and we do."""
_NOTED = "made again"
"""No name of a source: these have no blanks."""


class TopicIds:
    """The ids of the topics of a flow's last run."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._path = checkpoint / "topics.json"
        self._text = ""
        self._known: dict[str, Any] = {}
        try:
            text = self._path.read_text(encoding="utf-8")
            known = json.loads(text)
            if not isinstance(known, dict) or not all(isinstance(each, dict) for each in known.values()):
                raise ValueError("it is no object of objects")
            self._text, self._known = text, known
        except FileNotFoundError:
            pass  # the first run, or an earlier version's: there is nothing to compare with
        except (OSError, ValueError) as error:
            raise PipelineError(f"{self._path} is damaged: {error}; {DAMAGED_ADVICE}") from error

    def made_again(self, source: Source, cluster: KafkaCluster) -> list[str]:
        """The topics that are others now. `save` keeps the ids of today."""
        known = self._known.setdefault(source.name, {})
        found = _ids(source, cluster)
        changed = [topic for topic, topic_id in found.items() if known.get(topic, topic_id) != topic_id]
        known |= found
        return changed

    def problems(self, source: Source, cluster: KafkaCluster) -> list[str]:
        """What is to be said about each topic that is another one now."""
        return [_problem(topic) for topic in self.made_again(source, cluster)]

    def require_same(self, source: Source, cluster: KafkaCluster, flow: Flow, say: Callable[[str], None]) -> list[str]:
        """Topics that are others now, where the source allows that; they are then said and noted.

        Raises `DataLossError`."""
        replaced = keyed_by_position(flow)
        topics = self.made_again(source, cluster)
        for topic in topics:
            kept = (
                f" Rows of the topic before are replaced in {' and '.join(replaced)}: the key is a position."
                if replaced
                else ""
            )
            also = " --replace-rows" if replaced else ""
            if source.quarantines:
                raise DataLossError(
                    f"{_problem(topic)}, and what was decided about its micro-batches is of that one, too. Begin with the new "
                    f"one: `{flow.places.command('reset')} --yes{also}`.{kept}"
                )
            if source.fail_on_data_loss:
                raise DataLossError(
                    f"{_problem(topic)}. To read the new one from its beginning, run the flow with fail_on_data_loss = false, or "
                    f"use `{flow.places.command('rewind')} --to earliest --yes{also}`.{kept}"
                )
            noted = self._known.setdefault(_NOTED, {}).setdefault(source.name, {})
            noted[topic] = {query: self._planned(query) for query in ("main", bad_rows_query(flow, source))}
            say(f"warning: {_problem(topic)}. The new one is read from its beginning.{kept}")
        return topics

    def to_begin(self, source: Source, query: str) -> list[str]:
        """Topics of which a query still has the position in the topic before."""
        noted = self._known.get(_NOTED, {}).get(source.name, {})
        return sorted(topic for topic, after in noted.items() if self._planned(query) <= after.get(query, -1))

    @classmethod
    def of_today(cls, flow: Flow, cluster_of: Callable[[Source], KafkaCluster]) -> str:
        """The text of the file for positions in the topics that are there now, of each source."""
        return json.dumps({each.name: _ids(each, cluster_of(each)) for each in flow.sources}, indent=1)

    def save(self) -> None:
        """Keep the ids of today."""
        text = json.dumps(self._known, indent=1)
        if text != self._text:
            OsFiles().write_atomically(str(self._path), text.encode())
            self._text = text

    def _planned(self, query: str) -> int:
        """The last micro-batch that was planned of a query; -1 for none."""
        folder = self._checkpoint / query / "offsets"
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def _ids(source: Source, cluster: KafkaCluster) -> dict[str, str]:
    return cluster.topic_ids(source.topics or sorted({each.topic for each in cluster.partitions()}))


def keyed_by_position(flow: Flow) -> Sequence[str]:
    """The sinks in which a record of a topic that was made again replaces a row of the topic
    before: of the same position."""
    from barnabas.pipelines.outputs.registry import sink_name

    return [sink_name(sink) for sink in flow.sinks if set(sink.key) <= set(POSITION) and sink.key]


def _problem(topic: str) -> str:
    return f"topic {topic} {MADE_AGAIN} since the last run: the checkpoint has positions in the one before"


def bad_rows_query(flow: Flow, source: Source) -> str:
    """The name of a source's query for bad rows, which is its folder's name in the checkpoint."""
    return "bad-rows" if source is flow.source else f"bad-rows-{source.name}"
