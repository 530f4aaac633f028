"""Mirroring: a consumer and a producer hooked together, between two independent clusters.

`settings` turns the two clusters' properties and the topic patterns into what runs;
`maker` runs it.
"""

from barnabas.mirror.maker import MirrorMaker
from barnabas.mirror.settings import MirrorSettings, TopicFilter

__all__ = ["MirrorMaker", "MirrorSettings", "TopicFilter"]
