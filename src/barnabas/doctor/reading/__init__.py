"""Reading the evidence: a function for each part, registered by a decorator.

A module with readers is named in ``_MODULES``.

In Kafka: the calls of `Admin`.
"""

from collections.abc import Iterable

from barnabas.doctor.evidence.part import Evidence, EvidencePart
from barnabas.doctor.evidence.storage import EarlierStoragePart
from barnabas.doctor.reading import (
    broker_pages,
    cluster,
    ensemble,
    group_history,
    groups,
    metrics,
    records,
    security,
    server_facts,
    storage,
    znodes,
)
from barnabas.doctor.reading.registration import ClusterReading, Sources

__all__ = ["ClusterReading", "Sources", "read_evidence"]

_MODULES = (
    *(cluster, storage, metrics, records),
    *(groups, group_history, security, broker_pages, ensemble, server_facts, znodes),
)


def read_evidence(sources: Sources, kinds: Iterable[type[EvidencePart]]) -> Evidence:
    """Read these parts, each once; what cannot be read is absent, with the reason."""
    reading = ClusterReading(sources)
    wanted = list(dict.fromkeys(kinds))
    for kind in sorted(wanted, key=lambda each: each is not EarlierStoragePart):
        reading.get(kind)
    return reading.evidence()
