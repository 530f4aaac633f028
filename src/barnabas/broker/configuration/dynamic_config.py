"""All configuration as it holds on this broker now: of topics, of this broker, of
all brokers (KIP-226).

A broker's property takes its value from the first of these that has it:

    dynamic for this broker  >  dynamic for all brokers  >  its properties file  >  the default

and a topic's from its own configuration, then the broker's property that gives its
default (`log.settings`).

In Kafka: `DynamicBrokerConfig`, and the configurations that `LogManager` keeps.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.definitions import settings_without_effect
from barnabas.broker.configuration.rules import validate_broker_config
from barnabas.log.settings import LogConfig, defaults_from_broker

__all__ = ["DynamicConfig"]

logger = logging.getLogger(__name__)


class DynamicConfig:
    """The configuration as read from the znodes, and the resulting values."""

    def __init__(self, config: BrokerConfig, replicated_topics: Callable[[], Iterable[str]]) -> None:
        """``config`` holds the properties file's values.

        It is replaced when dynamic ones change them. ``replicated_topics`` are those of
        which this broker has logs.
        """
        self._config = config
        self._replicated_topics = replicated_topics
        self.static = config.values
        self.cluster_texts: dict[str, str] = {}
        self.broker_texts: dict[str, str] = {}
        self._topics: dict[str, dict[str, str]] = {}
        self._unknown: set[str] = set()
        self._defaults = defaults_from_broker(config.values.texts)
        self._built: dict[str, LogConfig] = {}  # by topic, under the present defaults
        self._plain: LogConfig | None = None
        self._topic_listeners: list[Callable[[str, LogConfig], None]] = []
        self._settings_listeners: list[Callable[[Values], None]] = []
        self._unknown_listeners: list[Callable[[str], None]] = []

    # Queries

    @property
    def values(self) -> Values:
        """This broker's settings as they hold now."""
        return self._config.values

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """The defaults of topics that follow from this broker's properties, as texts."""
        return self._defaults

    def topic_texts(self, topic: str) -> Mapping[str, str]:
        """The topic's own configuration, as far as it is known here."""
        return self._topics.get(topic, {})

    def known_texts(self, topic: str) -> Mapping[str, str] | None:
        """The topic's own configuration; None while it is not known here."""
        return self._topics.get(topic)

    def known_topics(self) -> list[str]:
        """The topics whose configuration is known here."""
        return list(self._topics)

    def log_config(self, topic: str) -> LogConfig:
        """A topic's configuration, for its log.

        If it is not known yet, the listeners of `on_unknown_topic` are called, so that it is read.
        Until then the defaults are in effect.
        """
        if topic not in self._topics and topic not in self._unknown:
            self._unknown.add(topic)
            for listener in self._unknown_listeners:
                listener(topic)
        return self._log_config(topic)

    def _log_config(self, topic: str) -> LogConfig:
        texts = self._topics.get(topic)
        kept = self._built.get(topic)
        if kept is None or kept.overrides != (texts or {}):
            try:
                kept = self.config_of(texts or {})
            except ConfigError as error:
                # Only a hand-written znode gets here. The log must still exist, with the
                # settings that are certain.
                logger.error("The configuration of topic %s is left out: %s", topic, error)
                return self.config_of({})
            self._built[topic] = kept
        return kept

    def config_of(self, texts: Mapping[str, str]) -> LogConfig:
        """The configuration of a topic with these texts of its own.

        Raises `ConfigError`. Topics without any share one object."""
        if texts:
            return LogConfig(texts, self._defaults)
        if self._plain is None:
            self._plain = LogConfig({}, self._defaults)
        return self._plain

    # Subscriptions

    def on_topic(self, listener: Callable[[str, LogConfig], None]) -> None:
        """Call ``listener`` when a topic's configuration changed."""
        self._topic_listeners.append(listener)

    def on_settings(self, listener: Callable[[Values], None]) -> None:
        """Call ``listener`` when this broker's settings changed.

        The `BrokerConfig` has the new values by then."""
        self._settings_listeners.append(listener)

    def on_unknown_topic(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` once for a topic whose configuration is needed and not known."""
        self._unknown_listeners.append(listener)

    # Updates

    def update_topic_config(self, topic: str, texts: Mapping[str, str]) -> None:
        """Take over the topic's configuration, as read from its znode or as this broker
        wrote it for a new topic."""
        self._topics[topic] = dict(texts)
        self._unknown.discard(topic)

    def forget_topic(self, topic: str) -> None:
        """Remove the configuration of a deleted topic."""
        self._topics.pop(topic, None)
        self._built.pop(topic, None)

    def notify_topic(self, topic: str) -> None:
        """Inform the listeners of a topic's configuration."""
        config = self._log_config(topic)
        for listener in self._topic_listeners:
            listener(topic, config)

    def update_broker_config(self, cluster_texts: dict[str, str], broker_texts: dict[str, str]) -> None:
        """Apply the configuration of all brokers and of this broker, as read from the znodes.

        Invalid values are left out."""
        self.cluster_texts, self.broker_texts = cluster_texts, broker_texts
        accepted = self.static
        for texts, per_broker in ((cluster_texts, False), (broker_texts, True)):
            for name, text in texts.items():
                try:
                    accepted = validate_broker_config(accepted, {name: text}, per_broker=per_broker)
                except ConfigError as error:
                    logger.error("Dynamic configuration %s is left out: %s", name, error)
        before = self._config.values.texts
        for name, reason in settings_without_effect(accepted).items():
            if accepted.texts[name] != before.get(name):
                logger.warning("Dynamic configuration %s has no effect: %s", name, reason)
        if accepted.texts == before:
            return
        self._config.replace(accepted)
        for listener in self._settings_listeners:
            listener(accepted)
        defaults = defaults_from_broker(accepted.texts)
        if defaults != self._defaults:
            self._defaults = defaults
            self._built.clear()
            self._plain = None
            for topic in sorted(set(self._replicated_topics())):
                self.notify_topic(topic)
