"""Quix Streams with exactly-once: writes each number with how many there were, counted in a store
with a changelog topic."""

import sys

from quixstreams import Application, State

bootstrap, name, source, target, directory = sys.argv[1:6]
app = Application(
    bootstrap,
    consumer_group=name,
    processing_guarantee="exactly-once",
    # Without it each run has another id, and what a killed one left open waits for its time-out.
    producer_extra_config={"transactional.id": name},
    consumer_extra_config={"session.timeout.ms": 6000},
    auto_offset_reset="earliest",
    commit_interval=0.5,
    state_dir=directory,
)


def count(value: str, state: State) -> str:
    """The number, and the count of all up to it."""
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return f"{value} {seen}"


numbers = app.topic(source, value_deserializer="str", key_deserializer="str")
counts = app.topic(target, value_serializer="str")
app.dataframe(numbers).apply(count, stateful=True).to_topic(counts)
app.run()
