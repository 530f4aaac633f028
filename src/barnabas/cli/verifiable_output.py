"""The lines of Kafka's verifiable tools: one JSON object for each event, which system tests read."""

import json
import time

__all__ = ["print_event"]


def print_event(name: str, **fields: object) -> None:
    """One event with its time in ms."""
    print(
        json.dumps({"timestamp": round(time.time() * 1000), "name": name, **fields}, separators=(",", ":")), flush=True
    )
