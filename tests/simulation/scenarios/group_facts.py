"""What the members of a consumer group in a simulated cluster know together, and what must hold of
it.

In a generation each partition has one owner at most; a group's generations rise; the owner of a
partition starts where the last acknowledged commit was, or behind it. A power loss of a broker can
take all of that, for groups live in a partition as records do; a commit that was under way then
proves nothing.
"""

from collections.abc import Iterable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.testing.simulation.history import History

__all__ = ["GroupFacts"]


class GroupFacts:
    """All assignments and commits that the members of a group saw together."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.commits: dict[TopicPartition, int] = {}
        self.generation = -1
        self.losses = 0

    def forgotten(self) -> None:
        """Records of the group's partition are gone with their disks, perhaps of this group."""
        self.losses += 1
        self.owners.clear()
        self.commits.clear()
        self.generation = -1

    def assigned(self, history: History, generation: int, member_id: str, owned: Iterable[TopicPartition]) -> None:
        """A member was given partitions in a generation."""
        for topic_partition in owned:
            owner = self.owners.setdefault((generation, topic_partition), member_id)
            if owner != member_id:
                history.violation(f"generation {generation}: {topic_partition} belongs to {owner} and {member_id}")
        self.generation = max(self.generation, generation)
        history.count("generations joined")

    def committed(self, history: History, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        """A commit of a generation was acknowledged."""
        if generation >= self.generation:  # an answer that comes late says nothing about where the next owner is
            self.commits.update(offsets)
        history.count("commits")
