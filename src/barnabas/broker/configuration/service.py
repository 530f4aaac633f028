"""Configuration that changes while brokers run: of topics, of one broker, of all brokers (KIP-226).

Texts live in ``/config/topics/NAME``, ``/config/brokers/ID`` and ``/config/brokers/<default>``. Whoever changes them
leaves a sequential note in ``/config/changes``; every broker watches that place, reads the entity again and applies it
at once. A broker's property takes its value from the first of these that has it:

    dynamic for this broker  >  dynamic for all brokers  >  its properties file  >  the default

and a topic's from its own configuration, then the broker's property that gives its default (`log.settings`).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.broker.cluster.znodes import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    DEFAULT_ENTITY,
    ZnodeFormatError,
    config_path,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from barnabas.broker.configuration.definitions import (
    DEFINITIONS,
    UPDATE_MODES,
    check_thread_counts,
    ineffective,
)
from barnabas.broker.configuration.protective import asks_for_protection
from barnabas.broker.configuration.table import UpdateMode
from barnabas.broker.requests.request import Node
from barnabas.coordination.client import SessionEvent
from barnabas.coordination.client.operations import WatchEvent, create, delete, get, get_children, set_data
from barnabas.log.settings import TOPIC_SETTINGS, LogConfig, defaults_from_broker
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Configs", "validate_broker_config"]

logger = logging.getLogger(__name__)

_CHANGE_LIFETIME_MS = 15 * 60 * 1000
_RETRY_MS = 1000


def validate_broker_config(settings: Values, texts: Mapping[str, str], *, per_broker: bool) -> Values:
    """The settings under new dynamic texts; raises `ConfigError` for what cannot change, or not to that."""
    fixed = sorted(name for name in texts if name in DEFINITIONS and name not in UPDATE_MODES)
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: Set({', '.join(fixed)})")
    if not per_broker:
        single = sorted(name for name in texts if UPDATE_MODES.get(name) is UpdateMode.PER_BROKER)
        if single:
            raise ConfigError(
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"Set({', '.join(single)})"
            )
    changed = settings.replace(texts)
    LogConfig({}, defaults_from_broker(changed.texts))
    return changed


class Configs:
    """This broker's view of all dynamic configuration, and the way to change it."""

    def __init__(self, node: Node) -> None:
        """``node.settings`` are the properties file's values; it is replaced when dynamic ones change them."""
        self._node = node
        self.static = node.settings
        self.cluster_texts: dict[str, str] = {}
        self.broker_texts: dict[str, str] = {}
        self._topics: dict[str, dict[str, str]] = {}
        self._fetching: set[str] = set()
        self._last_change = -1
        self._processing = False
        self._again = False
        self._defaults = defaults_from_broker(node.settings.texts)
        self._built: dict[str, LogConfig] = {}  # by topic, under the present defaults
        self._plain: LogConfig | None = None
        self._topic_listeners: list[Callable[[str, LogConfig], None]] = []
        self._settings_listeners: list[Callable[[Values], None]] = []

    # Looking

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """What this broker's properties make of topics that say nothing, as texts."""
        return self._defaults

    def topic_texts(self, topic: str) -> Mapping[str, str]:
        """The topic's own configuration, as far as it is known here."""
        return self._topics.get(topic, {})

    def known_topics(self) -> list[str]:
        """The topics whose configuration is known here."""
        return list(self._topics)

    def log_config(self, topic: str) -> LogConfig:
        """A topic's configuration, for its log.

        One that is not known yet is fetched, and told to those who asked `on_topic`; meanwhile defaults hold.
        """
        if topic not in self._topics and topic not in self._fetching:
            self._fetching.add(topic)
            self._node.spawn(self._fetch_and_tell(topic))
        return self._log_config(topic)

    def _log_config(self, topic: str) -> LogConfig:
        texts = self._topics.get(topic)
        kept = self._built.get(topic)
        if kept is None or kept.overrides != (texts or {}):
            try:
                kept = self.config_of(texts or {})
            except ConfigError as error:
                # Only a hand-written znode gets here. The log must still exist, under what is certain.
                logger.error("The configuration of topic %s is left out: %s", topic, error)
                return self.config_of({})
            self._built[topic] = kept
        return kept

    def config_of(self, texts: Mapping[str, str]) -> LogConfig:
        """What a topic's own texts come to on this broker; raises `ConfigError`. Most topics have none, and share one."""
        if texts:
            return LogConfig(texts, self._defaults)
        if self._plain is None:
            self._plain = LogConfig({}, self._defaults)
        return self._plain

    def on_topic(self, listener: Callable[[str, LogConfig], None]) -> None:
        """Have ``listener`` called when a topic's configuration is another than was told."""
        self._topic_listeners.append(listener)

    def on_settings(self, listener: Callable[[Values], None]) -> None:
        """Have ``listener`` called when this broker's settings changed; the configuration has the new values by then."""
        self._settings_listeners.append(listener)

    def learn_topic(self, topic: str, texts: Mapping[str, str]) -> None:
        """What this broker itself just wrote for a new topic."""
        self._topics[topic] = dict(texts)

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._built.pop(topic, None)

    # Loading

    async def load(self) -> None:
        """Read everything and begin to watch; before any log is opened.

        Raises `ConfigError` when a dynamic property asks for protection that does not exist.
        """
        client = self._node.coordination
        await self._watch_changes()
        names, _ = await client.get_children("/config/topics")
        await self.fetch(names)
        cluster_texts, broker_texts = await self._read_broker()
        for path, texts in (("<default>", cluster_texts), (str(self._node.broker_id), broker_texts)):
            for name, text in texts.items():
                if asks_for_protection(name, text):
                    raise ConfigError(
                        f"The dynamic configuration of broker {path} sets {name}, which asks for protection that this "
                        "version does not have. Delete it (configs --alter --entity-type brokers --delete-config) "
                        "to start without this protection"
                    )
        self._apply_broker(cluster_texts, broker_texts)

    async def fetch(self, topics: Sequence[str]) -> None:
        """Read the configurations of topics; a topic without one has none."""
        paths = [config_path("topics", topic) for topic in topics]
        results = await self._node.coordination.batch([get(path) for path in paths])
        for topic, path, result in zip(topics, paths, results, strict=True):
            if isinstance(result, KeeperError):
                if result.code is not Keeper.NO_NODE:
                    raise result
                self._topics[topic] = {}
            else:
                self._topics[topic] = _texts(path, result[0])

    async def _fetch_and_tell(self, topic: str) -> None:
        try:
            await self.fetch([topic])
        except KeeperError as error:
            logger.warning("The configuration of %s could not be read, it is tried again: %s", topic, error)
            self._node.call_later(_RETRY_MS, lambda: self._node.spawn(self._fetch_and_tell(topic)))
            return
        self._fetching.discard(topic)
        if self._topics.get(topic):
            self._tell_topic(topic)

    def _tell_topic(self, topic: str) -> None:
        config = self._log_config(topic)
        for listener in self._topic_listeners:
            listener(topic, config)

    async def _read_broker(self) -> list[dict[str, str]]:
        """The dynamic texts of all brokers and of this one."""
        paths = [config_path("brokers", name) for name in (DEFAULT_ENTITY, str(self._node.broker_id))]
        found = []
        for path, result in zip(paths, await self._node.coordination.batch([get(p) for p in paths]), strict=True):
            if isinstance(result, KeeperError) and result.code is not Keeper.NO_NODE:
                raise result
            found.append({} if isinstance(result, KeeperError) else _texts(path, result[0]))
        return found

    async def _reload_broker(self) -> None:
        self._apply_broker(*await self._read_broker())

    def _apply_broker(self, cluster_texts: dict[str, str], broker_texts: dict[str, str]) -> None:
        self.cluster_texts, self.broker_texts = cluster_texts, broker_texts
        accepted = self.static
        for texts, per_broker in ((cluster_texts, False), (broker_texts, True)):
            for name, text in texts.items():
                try:
                    accepted = validate_broker_config(accepted, {name: text}, per_broker=per_broker)
                except ConfigError as error:
                    logger.error("Dynamic configuration %s is left out: %s", name, error)
        if accepted.texts == self._node.settings.texts:
            return
        before = self._node.settings.texts
        for name, reason in ineffective(accepted).items():
            if accepted.texts[name] != before.get(name):
                logger.warning("Dynamic configuration %s has no effect: %s", name, reason)
        self._node.settings = accepted
        for listener in self._settings_listeners:
            listener(accepted)
        defaults = defaults_from_broker(accepted.texts)
        if defaults != self._defaults:
            self._defaults = defaults
            self._built.clear()
            self._plain = None
            topics = {partition.name.topic for partition in self._node.replicas}
            for topic in sorted(topics):
                self._tell_topic(topic)

    # Changes

    def session_changed(self, event: SessionEvent) -> None:
        """Watch again in a new session."""
        if event is SessionEvent.CREATED:
            self._changes_noted(None)

    def _changes_noted(self, _event: WatchEvent | None) -> None:
        if self._processing:
            self._again = True
            return
        self._processing = True
        self._node.spawn(self._process_changes())

    async def _process_changes(self) -> None:
        try:
            again = True
            while again:
                self._again = False
                await self._watch_changes()
                again = self._again
        except KeeperError as error:
            # The next connection, or the next try, reads it all again: notes wait for fifteen minutes.
            logger.warning("Changes of configuration could not be read: %s", error)
            self._node.call_later(_RETRY_MS, lambda: self._changes_noted(None))
        finally:
            self._processing = False

    async def _watch_changes(self) -> None:
        """Watch for notes, and work through those that are new."""
        client = self._node.coordination
        names, _ = await client.run(get_children(CONFIG_CHANGES, self._changes_noted))
        numbered = sorted(
            (int(name.removeprefix(CONFIG_CHANGE_PREFIX)), name)
            for name in names
            if name.removeprefix(CONFIG_CHANGE_PREFIX).isdecimal()
        )
        paths = [f"{CONFIG_CHANGES}/{name}" for _, name in numbered]
        results = await client.batch([get(path) for path in paths])
        entities: dict[str, None] = {}
        expired: list[str] = []
        now_ms = self._node.clock.wall_ms()
        for (number, _), path, result in zip(numbered, paths, results, strict=True):
            if isinstance(result, KeeperError):
                continue  # another broker purged it
            data, stat = result
            if now_ms - stat.ctime > _CHANGE_LIFETIME_MS:
                expired.append(path)
            if number > self._last_change:
                self._last_change = number
                try:
                    entities[decode_config_change(path, data)] = None
                except ZnodeFormatError as error:
                    logger.error("%s", error)
        await self.refresh(entities)
        await client.batch([delete(path) for path in expired])

    async def refresh(self, entities: Iterable[str]) -> None:
        """Read ``topics/NAME`` and ``brokers/NAME`` again, and apply what changed."""
        topics = []
        for entity in entities:
            kind, _, name = entity.partition("/")
            if kind == "topics":
                topics.append(name)
            elif kind == "brokers" and name in (DEFAULT_ENTITY, str(self._node.broker_id)):
                await self._reload_broker()
        before = {topic: self._topics.get(topic) for topic in topics}
        await self.fetch(topics)
        for topic in topics:
            if self._topics.get(topic) != before[topic]:
                logger.info("Topic %s has the configuration %s", topic, self._topics.get(topic))
                self._tell_topic(topic)

    # Changing

    async def alter_topic(
        self, topic: str, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool
    ) -> None:
        """Replace a topic's texts by ``change(texts)``; raises `KafkaError`."""

        def checked(texts: Mapping[str, str]) -> dict[str, str]:
            changed = change(texts)
            unknown = [name for name in changed if name not in TOPIC_SETTINGS]
            if unknown:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown[0]}")
            self.config_of(changed)
            return changed

        await self._alter("topics", topic, checked, validate_only)

    async def alter_broker(
        self, broker: int | None, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool
    ) -> None:
        """Replace the dynamic texts of this broker, or of all brokers (None); raises `KafkaError`."""

        def checked(texts: Mapping[str, str]) -> dict[str, str]:
            changed = change(texts)
            base = self.static if broker is None else self.static.replace(self.cluster_texts)
            after = validate_broker_config(base, changed, per_broker=broker is not None)
            check_thread_counts(
                self._node.settings, after, [name for name in changed if changed[name] != texts.get(name)]
            )
            return changed

        await self._alter("brokers", DEFAULT_ENTITY if broker is None else str(broker), checked, validate_only)

    async def _alter(
        self, kind: str, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> None:
        client = self._node.coordination
        path = config_path(kind, name)
        while True:
            try:
                data, stat = await client.get(path)
                version = stat.version
            except KeeperError as error:
                if error.code is not Keeper.NO_NODE:
                    raise
                data, version = None, None
            try:
                texts = encode_config(change(_texts(path, data)))
            except ConfigError as error:
                if kind == "brokers":
                    raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
                message = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): {error}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, message) from error
            if validate_only:
                return
            try:
                await client.run(create(path, texts) if version is None else set_data(path, texts, version))
                break
            except KeeperError as error:
                if error.code not in (Keeper.BAD_VERSION, Keeper.NODE_EXISTS, Keeper.NO_NODE):
                    raise
        note = create(
            f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}",
            encode_config_change(f"{kind}/{name}"),
            CreateMode.PERSISTENT_SEQUENTIAL,
        )
        await client.run(note, retry=True)  # a note twice does no harm, a missing one would
        # Others learn of it from the note; whoever is answered by us finds it applied here.
        await self.refresh([f"{kind}/{name}"])


def _texts(path: str, data: bytes | None) -> dict[str, str]:
    try:
        return decode_config(path, data)
    except ZnodeFormatError as error:
        logger.error("%s", error)
        return {}
