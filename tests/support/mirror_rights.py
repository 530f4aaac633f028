"""Mirrors, and the rights that each needs at its source and at its target.

One of the two is the cluster whose rights are recorded, the other one allows everything."""

import logging
import threading
from collections.abc import Mapping, Sequence
from uuid import uuid4

from barnabas.base.errors import BarnabasError
from barnabas.client import Admin, Producer
from barnabas.mirror import MirrorMaker, MirrorSettings, TopicFilter
from barnabas.testing import Cluster
from support.command_rights import Call

__all__ = ["mirrors", "prepare_other"]

_RECORDS = 3
_TURN_S, _TURNS = 0.05, 1200
_GROUP = "mirror"
Properties = Mapping[str, str]


def prepare_other(other: Cluster) -> None:
    """Give the cluster that allows everything a topic with records."""
    other.create_topic("orders")
    with Producer(other.client_properties()) as producer:
        for number in range(_RECORDS):
            producer.send("orders", str(number))


def mirrors(other: Cluster) -> Sequence[Call]:
    """Of one topic, whose copy exists."""
    open_properties = other.client_properties()
    return (
        Call(
            "source.properties",
            lambda properties: _mirror({**properties, "group.id": _GROUP}, open_properties),
            _without_group,
        ),
        Call(
            "target.properties",
            lambda properties: _mirror({**open_properties, "group.id": uuid4().hex}, properties),
        ),
    )


def _without_group(_: Cluster, admin: Admin) -> None:
    """It reads from the beginning."""
    if _GROUP in [group.group_id for group in admin.list_groups()]:
        admin.delete_group(_GROUP)


class _Warnings(logging.Handler):
    """What a mirror complains of: it goes on without what it has no right to, if it can."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _mirror(reading: Properties, writing: Properties) -> object:
    """Copy all records that there are. Raises `BarnabasError`, also for what was left undone."""
    logger, warnings = logging.getLogger("barnabas.mirror"), _Warnings()
    logger.addHandler(warnings)
    try:
        properties = {**reading, "auto.offset.reset": "earliest"}
        maker = MirrorMaker(MirrorSettings(properties, dict(writing), TopicFilter("orders")))
        maker.start()
        turn = threading.Event()
        for _ in range(_TURNS):
            if maker.copied >= _RECORDS or warnings.texts or not maker.is_running:
                break
            turn.wait(_TURN_S)
        maker.stop()
        maker.wait()
    finally:
        logger.removeHandler(warnings)
    if warnings.texts:
        raise BarnabasError("; ".join(warnings.texts))
    return maker.copied >= _RECORDS
