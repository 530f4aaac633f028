"""The one hierarchy of client errors, and that what is known is reported at once."""

import ast
import asyncio
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest

import barnabas.client
from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AuthenticationError,
    AuthorizationError,
    ClientError,
    ClosedError,
    CommitError,
    ConfigurationError,
    ConnectError,
    Consumer,
    FencedError,
    Producer,
    RefusedError,
    SerializationError,
    TimedOutError,
    TransactionError,
    UndeliveredError,
    UnknownHostError,
    UnknownTopicError,
    UnsupportedError,
)
from barnabas.client.admin.configurations import ResourceType, name_of_resource
from barnabas.client.errors import from_librdkafka, refusal
from barnabas.client.producer.transactions import Transactions, _transaction_error
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from support.needs import ROOT
from support.waiting import eventually

PACKAGE = Path(barnabas.client.__file__).parent
NO_BROKER = {"bootstrap.servers": "127.0.0.1:1"}


def test_every_exported_error_is_a_client_error() -> None:
    """One except clause catches all."""
    errors = [getattr(barnabas.client, name) for name in barnabas.client.__all__ if name.endswith("Error")]
    assert len(errors) > 15
    assert all(issubclass(error, ClientError) for error in errors)
    assert issubclass(ConfigurationError, ConfigError)
    assert issubclass(TimedOutError, TimeoutError)
    assert issubclass(RefusedError, KafkaError)


def test_no_module_of_the_client_raises_another_error() -> None:
    """A raise names a class of the hierarchy, a function that makes one, or what the
    protocol requires of Python."""
    known = {name for name in barnabas.client.__all__ if name.endswith("Error")}
    known |= {
        "refusal",
        "from_librdkafka",
        "_unreadable",
        "_transaction_error",
        "no_answer",
        "no_leader",
        "self._rights.lookup_error",
        "self._rights.reading_error",
        "AttributeError",
        "NotImplementedError",
    }
    # AssertionError: after an endless loop; next: the first of the errors that came.
    known |= {"AssertionError", "next"}
    known |= {"BufferError"}  # librdkafka's for a full queue, for which a send waits
    known |= {"MalformedMessageError", "WrongAnswerError"}  # caught where answers come in
    # A ValueError as fastavro's; caught where schemas and values are read.
    known |= {"AvroBoundsError"}
    # Urllib's protocol for an answer; caught where requests are made.
    known |= {"urllib.error.HTTPError"}
    # Those of a validator of JSON Schema; caught where schemas and values are read.
    known |= {"ValidationError", "SchemaError", "Re2Error"}
    # Caught where the values of a configuration are looked up.
    known |= {"LookupError"}
    strange = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = node.exc.func.id if isinstance(node.exc.func, ast.Name) else ast.unparse(node.exc.func)
                if name not in known:
                    strange.append(f"{path.name}:{node.lineno} {name}")
    assert strange == []


def test_the_reference_names_every_error_and_every_method_of_admin() -> None:
    """A page that lacks one would keep it from those who read and do not look into the code."""
    page = (ROOT / "docs" / "reference" / "client.md").read_text()
    errors = {name for name in barnabas.client.__all__ if name.endswith("Error")} - {"ClientError"}
    methods = {name for name in vars(Admin) if not name.startswith("_")} - {"close"}
    assert {name for name in errors | methods if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedError),
        (ErrorCode.INVALID_PARTITIONS, RefusedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (ErrorCode.ILLEGAL_GENERATION, CommitError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.SECURITY_DISABLED, UnsupportedError),
    ],
)
def test_a_brokers_error_code_chooses_the_class(code: ErrorCode, kind: type[RefusedError]) -> None:
    """The same class whether librdkafka or the admin connection received the code."""
    assert type(refusal(code)) is kind
    assert type(from_librdkafka(confluent_kafka.KafkaError(int(code)), "t")) is kind
    assert refusal(code).code is code
    assert refusal(code).name == code.name


def test_a_missing_right_names_the_resource_though_the_message_has_its_letters() -> None:
    """Names may be as short as a letter, and that of the default of all brokers is empty."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert str(refusal(code, "Authorization failed.", about="topic a")).startswith("topic a: Authorization failed.")
    assert str(refusal(code, "No right to topic a.", about="topic a")).startswith("No right to topic a.")
    assert name_of_resource(ResourceType.BROKER, "") == "default broker configuration"
    assert name_of_resource(ResourceType.TOPIC, "a") == "topic a"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (confluent_kafka.KafkaError._RESOLVE, UnknownHostError),
        (confluent_kafka.KafkaError._TRANSPORT, ConnectError),
        (confluent_kafka.KafkaError._AUTHENTICATION, AuthenticationError),
        (confluent_kafka.KafkaError._MSG_TIMED_OUT, TimedOutError),
        (confluent_kafka.KafkaError._UNKNOWN_TOPIC, UnknownTopicError),
    ],
)
def test_librdkafkas_own_errors_have_a_class_and_a_remedy(code: int, kind: type[ClientError]) -> None:
    """Each says what to do."""
    error = from_librdkafka(confluent_kafka.KafkaError(code), "cannot do it")
    assert type(error) is kind
    assert error.remedy
    assert error.remedy in str(error)


def test_remarks_for_librdkafkas_developers_are_left_out() -> None:
    """How long a connection was in which state, and how many equal errors were suppressed."""
    text = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
    error = confluent_kafka.KafkaError(
        confluent_kafka.KafkaError._TRANSPORT, f"{text} (after 0ms in state CONNECT, 584 identical error(s) suppressed)"
    )
    assert str(from_librdkafka(error, "problem")) == f"problem: {text} (is a broker running there?)"


@pytest.mark.parametrize("make", [Producer, Consumer])
def test_hosts_that_no_one_knows_are_reported_by_the_constructor(make: type) -> None:
    """Not after delivery.timeout.ms."""
    started = time.monotonic()
    with pytest.raises(UnknownHostError, match=r"no address is known for no-such-host\.invalid"):
        make({"bootstrap.servers": "no-such-host.invalid:9092", "group.id": "g"})
    assert time.monotonic() - started < 60


def test_one_host_that_is_known_is_enough() -> None:
    """The others may be added to the DNS later."""
    Consumer({"bootstrap.servers": "no-such-host.invalid:9092,PLAINTEXT://127.0.0.1:1"}).close()


def test_an_address_without_a_port_number_is_a_configuration_error() -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match="HOST:PORT is expected"):
        Producer({"bootstrap.servers": "localhost:kafka"})


def await_a_problem(producer: Producer[str, str]) -> None:
    """Until the first connection was refused: on a busy machine librdkafka's thread may
    take its time to try it."""
    eventually(lambda: producer.poll(0.05) or producer._errors.last, what="a problem with a broker")


def test_a_time_out_names_the_last_problem() -> None:
    """A refused connection is the reason why a record was not acknowledged."""
    producer = Producer(NO_BROKER)
    receipt = producer.send("t", "x")
    await_a_problem(producer)
    with pytest.raises(
        TimedOutError, match=r"within 0\.5 s; the last problem with a broker: .*127\.0\.0\.1:1.*refused"
    ):
        receipt.result(timeout_s=0.5)
    producer.purge()


def test_closing_ends_within_its_limit_and_says_what_is_lost() -> None:
    """Two records, no broker, half a second."""
    producer = Producer(NO_BROKER, close_timeout_s=0.5)
    producer.send_many("t", ["x", "y"])
    await_a_problem(producer)
    started = time.monotonic()
    with pytest.raises(UndeliveredError, match=r"2 records were not acknowledged within 0\.5 s; the last") as caught:
        producer.close()
    assert caught.value.undelivered == 2
    del producer
    assert time.monotonic() - started < 25
    with Producer(NO_BROKER, close_timeout_s=0.5) as producer:
        receipt = producer.send("t", "z")
        producer.purge()
        with pytest.raises(ClientError):
            receipt.result()


def test_a_consumer_that_cannot_leave_its_group_closes_within_its_limit() -> None:
    """There is no coordinator to say goodbye to."""
    with Consumer({**NO_BROKER, "group.id": "g"}, close_timeout_s=0.5) as consumer:
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(0.05) or consumer.last_problem, what="a problem with a broker")
        assert isinstance(consumer.last_problem, ConnectError)
        started = time.monotonic()
    assert time.monotonic() - started < 9
    with pytest.raises(ClosedError):
        consumer.poll()


PLACE = TopicPartition("t", 0)
CALLS: dict[type, dict[str, tuple[object, ...]]] = {
    Consumer: {
        **dict.fromkeys(("unsubscribe", "assignment", "poll", "consume", "commit", "lag", "topics", "__enter__"), ()),
        **{name: ([PLACE],) for name in ("assign", "pause", "resume", "committed")},
        "subscribe": (["t"],),
        "seek": ("t", 0, 0),
        "offsets_for_times": ({PLACE: 1},),
        "watermarks": ("t", 0),
        "group_metadata": (),
    },
    Producer: {
        **dict.fromkeys(("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction"), ()),
        "send": ("t", "x"),
        "send_many": ("t", ["x"]),
        "partitions_for": ("t",),
        "send_offsets_to_transaction": ({}, None),
        "__enter__": (),
    },
    Admin: {"list_topics": (), "create_topic": ("t",), "describe_group": ("g",), "__enter__": ()},
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, calls in CALLS.items() for name in calls])
def test_a_closed_client_says_that_it_is_closed(kind: type, name: str) -> None:
    """Whatever it is asked for."""
    client = kind({**NO_BROKER, "group.id": "g"} if kind is Consumer else NO_BROKER)
    client.close()
    with pytest.raises(ClosedError, match=r"is closed \(create another one\)"):
        getattr(client, name)(*CALLS[kind][name])


@pytest.mark.parametrize("make", [AsyncConsumer, AsyncAdmin])
def test_a_closed_asyncio_client_says_so_too(make: type) -> None:
    """What waits and what does not."""

    async def use() -> None:
        client = make({**NO_BROKER, "group.id": "g"} if make is AsyncConsumer else NO_BROKER)
        await client.close()
        with pytest.raises(ClosedError):
            await (client.topics() if make is AsyncConsumer else client.list_topics())
        with pytest.raises(ClosedError):
            await client.__aenter__()

    asyncio.run(use())


@pytest.mark.parametrize(
    "given",
    [
        {"headers": 5},
        {"headers": {"by": b"hand"}},
        {"headers": [("by", 5)]},
        {"headers": ["by"]},
        {"partition": "first"},
    ],
    ids=repr,
)
def test_a_record_of_which_a_part_makes_no_sense_is_not_taken(given: dict[str, object]) -> None:
    """The error says which it is."""
    with pytest.raises(SerializationError, match="headers=|partition|header value|str"):
        Producer(NO_BROKER).send("t", "x", **given)  # type: ignore[arg-type]  # that is tried here


def test_what_was_being_done_is_said_once() -> None:
    """librdkafka's Python says it, too."""
    for theirs in ("Commit failed: ", "Failed to seek to offset 7: ", "Unable to produce message: "):
        error = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT, f"{theirs}Local: no")
        assert str(from_librdkafka(error, "cannot do it")) == "cannot do it: Local: no (is a broker running there?)"


@pytest.mark.parametrize(
    ("blocking", "twin", "absent"),
    [
        (Admin, AsyncAdmin, set()),
        (
            Consumer,
            AsyncConsumer,
            {"wait", "forget", "has_record", "librdkafka"},
        ),  # parts of poll; the client underneath
        (
            Producer,
            AsyncProducer,
            {"poll", "purge", "prepare", "give_up", "wait_for", "delivery_error"}
            | {"keep_failure", "discard_failure", "is_ready", "get_ready"},
        ),  # the twin's thread polls, and its futures are the receipts
    ],
)
def test_the_asyncio_twin_has_the_same_methods(blocking: type, twin: type, absent: set[str]) -> None:
    """What one can do, the other can."""
    public = {name for name in vars(blocking) if not name.startswith("_")}
    assert public - set(dir(twin)) == absent


def test_transactions_need_a_transactional_id() -> None:
    """The name of what is missing."""
    with pytest.raises(ConfigurationError, match=r"transactional\.id is missing"):
        Producer(NO_BROKER).init_transactions()
    assert issubclass(TransactionError, RefusedError)


@pytest.mark.parametrize(
    ("code", "fatal", "retriable", "abort", "kind", "remedy"),
    [
        (90, True, False, False, FencedError, "make a new producer: this one cannot continue"),
        (48, False, False, True, TransactionError, "abort it, and begin another"),
        (22, False, False, True, TransactionError, "abort it, and begin another"),
        (-185, False, False, True, TransactionError, "abort it, and begin another"),
        (-185, False, True, False, TimedOutError, "make the same call again"),
        (-172, False, False, False, ClientError, ""),
    ],
)
def test_an_error_of_a_transaction_says_what_comes_next(
    code: int, fatal: bool, retriable: bool, abort: bool, kind: type[ClientError], remedy: str
) -> None:
    """Abort, the same call again, or a new producer; whatever the error's own class."""
    error = confluent_kafka.KafkaError(code, "why", fatal, retriable, abort)
    made = _transaction_error(error, "cannot commit the transaction")
    assert type(made) is kind
    assert (made.remedy, made.fatal, made.retriable) == (remedy, fatal, retriable)
    assert str(made).startswith("cannot commit the transaction: why")
    assert str(made).endswith(f"({remedy})" if remedy else "why")


class _Refusing:
    """librdkafka's producer with one answer to each commit. It counts its aborts."""

    def __init__(self, *answers: confluent_kafka.KafkaError | None) -> None:
        self.answers = list(answers)
        self.aborts = 0

    def begin_transaction(self) -> None:
        """Nothing to do."""

    def commit_transaction(self, _timeout_s: float) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise confluent_kafka.KafkaException(answer)

    def abort_transaction(self, _timeout_s: float) -> None:
        self.aborts += 1


def test_a_block_whose_commit_may_be_repeated_is_not_aborted() -> None:
    """The commit may have taken place: an abort would hide that, and the same call again tells."""
    timed_out = confluent_kafka.KafkaError(-185, "late", False, True, False)
    refused = confluent_kafka.KafkaError(48, "no", False, False, True)
    with Producer({**NO_BROKER, "transactional.id": "x"}, close_timeout_s=0.1) as producer:
        underneath = _Refusing(timed_out, None, refused)
        producer._transactions = Transactions(underneath, {"transactional.id": "x"})
        with pytest.raises(TimedOutError), producer.transaction():
            pass
        assert underneath.aborts == 0
        producer.commit_transaction()
        with pytest.raises(TransactionError), producer.transaction():
            pass
        assert underneath.aborts == 1
        with pytest.raises(ArithmeticError), producer.transaction():
            raise ArithmeticError
        assert underneath.aborts == 2


def test_an_admin_without_a_broker_says_so() -> None:
    """The connection is refused, and that is the message."""
    with Admin(NO_BROKER) as admin, pytest.raises(ConnectError, match="refused the connection"):
        admin.list_topics()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("from barnabas.client import Producre", "Producre"),
        ("from barnabas.client import Producer; Producer({}).sned('t', 'v')", "sned"),
        ("from barnabas.client import Producer; Producer({}).send('t', 5)", "int"),
        ("from barnabas.client import Consumer\nfor r in Consumer({}):\n    r.value.real", "real"),
        (
            "from barnabas.client import Producer, INTEGER\nProducer({}, serializer=INTEGER).send('t', 'text')",
            "str",
        ),
    ],
)
def test_a_typing_error_is_found_by_mypy(line: str, message: str, tmp_path: Path) -> None:
    """A wrong name, method or type of value fails in strict mode."""
    program = tmp_path / "program.py"
    program.write_text(line + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "/dev/null", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in done.stdout
