"""The znodes of dynamic configuration: read, changed, and followed, as steps
(Kafka's `ZkConfigRepository`).

Texts live in ``/config/topics/NAME``, ``/config/brokers/ID`` and ``/config/brokers/<default>``. A
broker that changes them leaves a sequential note in ``/config/changes``. Every broker watches that
place (`cluster.change_notes`), reads the entity again and applies it at once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from barnabas.base.errors import ConfigError
from barnabas.broker.cluster.change_notes import ChangeNotes
from barnabas.broker.cluster.steps import (
    ITEMS_A_TURN,
    Children,
    Create,
    Read,
    SetData,
    Steps,
    WriteResult,
    WriteUnfenced,
    Written,
    Znode,
)
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
from barnabas.broker.configuration.definitions import check_thread_counts
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.rules import check_protection, is_removed, names_left_out, validate_broker_config
from barnabas.broker.configuration.scram_credentials import (
    ScramChange,
    ScramCredentials,
    credentials_of,
    sanitized,
    texts_after_changes,
    unsanitized,
)
from barnabas.broker.configuration.stand_in_credentials import StandInCredentials, decode_secret, encode_secret
from barnabas.log.settings import TOPIC_SETTINGS
from barnabas.security.scram import ScramCredential
from barnabas.wire.jute.opcodes import CreateMode
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["SCRAM_USERS_PATHS", "ConfigChange", "ConfigRepository", "alter_entity", "alter_scram_znodes"]

logger = logging.getLogger(__name__)

_USERS = "/config/users"
SCRAM_USERS_PATHS = (_USERS, CONFIG_CHANGES)
"""What must be there before `alter_scram_znodes`; a broker makes it at its start."""

ConfigChange = Callable[[Mapping[str, str]], dict[str, str]]
"""Makes the new texts of an entity from its old ones. Raises `KafkaError`, or
`ConfigError` for values."""


class ConfigRepository:
    """Keeps a `DynamicConfig` to the znodes, and changes them."""

    def __init__(
        self, configs: DynamicConfig, credentials: ScramCredentials | None, broker_id: int, wall_ms: Callable[[], int]
    ) -> None:
        """``credentials`` are kept to the znodes of users; None where no listener needs them."""
        self._configs = configs
        self._credentials = credentials
        self._broker_id = broker_id
        self._notes = ChangeNotes(CONFIG_CHANGES, CONFIG_CHANGE_PREFIX, wall_ms)

    # Reading

    def load(self) -> Steps[None]:
        """Read everything, and watch for changes if the caller watches; before any log is opened.

        Raises `ConfigError` when a dynamic property asks for protection that does not exist.
        """
        notes = yield from self._notes.skip()
        topics: list[str] = yield Children("/config/topics")
        for first in range(0, len(topics), ITEMS_A_TURN):
            yield from self.load_topics(topics[first : first + ITEMS_A_TURN])
        cluster_texts, broker_texts = yield from self._read_broker()
        check_protection("<default>", self._configs.static, cluster_texts)
        check_protection(str(self._broker_id), self._configs.static, broker_texts)
        self._configs.update_broker_config(cluster_texts, broker_texts)
        if self._credentials is not None:
            yield from self._load_all_users(self._credentials)
        yield from self._notes.delete_expired(notes)

    def _load_all_users(self, credentials: ScramCredentials) -> Steps[None]:
        yield from _load_secret(credentials.stand_ins)
        users: list[str] = yield Children(_USERS)
        yield from self._load_users(users, credentials)
        credentials.keep(users)

    def reload_users(self) -> Steps[None]:
        """Read the credentials of all users again: notes may have come and gone
        while there was no session."""
        if self._credentials is not None:
            yield from self._load_all_users(self._credentials)

    def _load_users(self, nodes: Sequence[str], credentials: ScramCredentials) -> Steps[None]:
        paths = [config_path("users", node) for node in nodes]
        znodes: list[Znode | None] = yield Read(paths)
        for node, path, znode in zip(nodes, paths, znodes, strict=True):
            credentials.update(node, _texts(path, znode))

    def read_users(self, names: Sequence[str] | None) -> Steps[dict[str, dict[str, ScramCredential]]]:
        """The SCRAM credentials of these users, or of all, by mechanism."""
        nodes: Sequence[str] = (yield Children(_USERS)) if names is None else [name for name in names if name]
        found = {}
        for first in range(0, len(nodes), ITEMS_A_TURN):
            some = nodes[first : first + ITEMS_A_TURN]
            if names is not None:
                some = [sanitized(name) for name in some]
            paths = [config_path("users", node) for node in some]
            znodes: list[Znode | None] = yield Read(paths)
            for node, path, znode in zip(some, paths, znodes, strict=True):
                if znode is not None:
                    found[unsanitized(node)] = credentials_of(unsanitized(node), _texts(path, znode))
        return found

    def load_topics(self, topics: Sequence[str]) -> Steps[None]:
        """Read the configurations of topics; a topic without a znode has none."""
        paths = [config_path("topics", topic) for topic in topics]
        znodes: list[Znode | None] = yield Read(paths)
        for topic, path, znode in zip(topics, paths, znodes, strict=True):
            self._configs.update_topic_config(topic, _texts(path, znode))

    def load_topic_config(self, topic: str) -> Steps[None]:
        """Read a topic's configuration for the first time, and apply it if there is one."""
        yield from self.load_topics([topic])
        if self._configs.topic_texts(topic):
            self._configs.notify_topic(topic)

    def _read_broker(self) -> Steps[tuple[dict[str, str], dict[str, str]]]:
        """The dynamic texts of all brokers, and of this one."""
        paths = [config_path("brokers", name) for name in (DEFAULT_ENTITY, str(self._broker_id))]
        znodes: list[Znode | None] = yield Read(paths)
        cluster_texts, broker_texts = (_texts(path, znode) for path, znode in zip(paths, znodes, strict=True))
        return cluster_texts, broker_texts

    def process_changes(self) -> Steps[None]:
        """Look for notes, and read again what the new ones name."""
        yield from self._notes.pause()
        yield from self._notes.process(self._apply_notes)

    def _apply_notes(self, notes: Sequence[tuple[str, bytes | None]]) -> Steps[None]:
        entities: dict[str, None] = {}
        for path, data in notes:
            try:
                entities[decode_config_change(path, data)] = None
            except ZnodeFormatError as error:
                logger.error("%s", error)
        yield from self.refresh(entities)

    def refresh(self, entities: Iterable[str]) -> Steps[None]:
        """Read ``topics/NAME`` and ``brokers/NAME`` again, and apply what changed."""
        configs = self._configs
        topics, users = [], []
        for entity in entities:
            kind, _, name = entity.partition("/")
            if kind == "topics":
                topics.append(name)
            elif kind == "users" and "/" not in name:
                # What a user has for a single client is a quota.
                users.append(name)
            elif kind == "brokers" and name in (DEFAULT_ENTITY, str(self._broker_id)):
                configs.update_broker_config(*(yield from self._read_broker()))
        if users and self._credentials is not None:
            yield from self._load_users(users, self._credentials)
        before = {topic: configs.known_texts(topic) for topic in topics}
        yield from self.load_topics(topics)
        for topic in topics:
            texts = configs.topic_texts(topic)
            if texts != before[topic]:
                logger.info("Topic %s has the configuration %s", topic, texts)
                configs.notify_topic(topic)

    # Changing

    def alter_topic(self, topic: str, change: ConfigChange, *, validate_only: bool) -> Steps[None]:
        """Replace a topic's texts by ``change(texts)``; raises `KafkaError`."""

        def checked(texts: Mapping[str, str]) -> dict[str, str]:
            changed = change(texts)
            unknown = next((name for name in changed if name not in TOPIC_SETTINGS), None)
            if unknown is not None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown}")
            self._configs.config_of(changed)
            return changed

        yield from self._alter("topics", topic, checked, validate_only)

    def alter_broker(self, broker: int | None, change: ConfigChange, *, validate_only: bool) -> Steps[None]:
        """Replace the dynamic texts of this broker, or of all brokers (None).

        Raises `KafkaError`."""
        configs, per_broker = self._configs, broker is not None
        removed: list[str] = []

        def checked(texts: Mapping[str, str]) -> dict[str, str]:
            # What has no effect is compared with nothing, and keeps no change from being made.
            base = configs.static
            if per_broker:
                of_all = names_left_out(base, configs.cluster_texts, per_broker=False)
                base = base.replace({name: text for name, text in configs.cluster_texts.items() if name not in of_all})
            without_effect = names_left_out(base, texts, per_broker=per_broker)
            kept = {name: text for name, text in texts.items() if name not in without_effect}
            changed = change(kept)
            after = validate_broker_config(base, changed, per_broker=per_broker)
            check_thread_counts(configs.values, after, [name for name in changed if changed[name] != texts.get(name)])
            untouched = change(texts).keys() & without_effect - changed.keys()
            gone = without_effect - changed.keys()
            removed[:] = sorted(name for name in gone if is_removed(name, per_broker=per_broker))
            untouched.difference_update(removed)
            return {**changed, **{name: texts[name] for name in sorted(untouched)}}

        yield from self._alter("brokers", DEFAULT_ENTITY if broker is None else str(broker), checked, validate_only)
        if not validate_only:
            for name in removed:
                logger.warning("Removed dynamic configuration %s, which had no effect", name)

    def alter_user(self, user: str, changes: Sequence[ScramChange]) -> Steps[None]:
        """Change a user's SCRAM credentials; raises `KafkaError`."""
        yield from self._alter("users", sanitized(user), lambda texts: texts_after_changes(texts, changes), False)

    def _alter(self, kind: str, name: str, change: ConfigChange, validate_only: bool) -> Steps[None]:
        yield from alter_entity(kind, name, change, validate_only=validate_only)
        # Others learn of it from the note. A client that is answered here finds it applied here.
        if not validate_only:
            yield from self.refresh([f"{kind}/{name}"])


def _load_secret(stand_ins: StandInCredentials) -> Steps[None]:
    """Take over the cluster's secret, or make this broker's the cluster's."""
    while True:
        znodes: list[Znode | None] = yield Read([_USERS])
        znode = znodes[0]
        if znode is not None and znode.data:
            try:
                stand_ins.secret = decode_secret(znode.data)
            except ValueError as error:  # the data may be a secret
                logger.error(
                    "The data of %s is no secret for salts (%s): brokers answer differently for users that do not exist",
                    _USERS,
                    error,
                )
            return
        data = encode_secret(stand_ins.secret)
        op = Create(_USERS, data) if znode is None else SetData(_USERS, data, znode.version)
        written: list[Written] = yield WriteUnfenced([op])
        changed_meanwhile = (WriteResult.BAD_VERSION, WriteResult.EXISTS, WriteResult.ABSENT)
        if written[0].or_raise(*changed_meanwhile) is WriteResult.DONE:
            return


def alter_entity(kind: str, name: str, change: ConfigChange, *, validate_only: bool = False) -> Steps[None]:
    """Replace the texts of an entity's znode by ``change(texts)``, and leave a note for all
    brokers. Raises `KafkaError`."""
    path = config_path(kind, name)
    while True:
        znodes: list[Znode | None] = yield Read([path])
        znode = znodes[0]
        try:
            texts = encode_config(change(_texts(path, znode)))
        except ConfigError as error:
            if kind == "brokers":
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
            message = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): {error}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from error
        if validate_only:
            return
        op = Create(path, texts) if znode is None else SetData(path, texts, znode.version)
        written: list[Written] = yield WriteUnfenced([op])
        changed_meanwhile = (WriteResult.BAD_VERSION, WriteResult.EXISTS, WriteResult.ABSENT)
        if written[0].or_raise(*changed_meanwhile) is WriteResult.DONE:
            break
    note = Create(
        f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}",
        encode_config_change(f"{kind}/{name}"),
        CreateMode.PERSISTENT_SEQUENTIAL,
    )
    # A second note does no harm, a missing one does.
    noted: list[Written] = yield WriteUnfenced([note], repeat=True)
    noted[0].or_raise()


def alter_scram_znodes(changes: Sequence[ScramChange]) -> Steps[None]:
    """Change the credentials of users, one after the other. Raises `KafkaError`."""
    by_user: dict[str, list[ScramChange]] = {}
    for change in changes:
        by_user.setdefault(change.user, []).append(change)
    for user, own in by_user.items():
        yield from alter_entity("users", sanitized(user), partial(texts_after_changes, changes=own))


def _texts(path: str, znode: Znode | None) -> dict[str, str]:
    if znode is None:
        return {}
    try:
        return decode_config(path, znode.data)
    except ZnodeFormatError as error:
        logger.error("%s", error)
        return {}
