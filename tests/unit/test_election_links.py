"""Which connection of the election ports stays, decided without sockets."""

from barnabas.coordination.election.links import CloseLink, ConnectTo, Links, SendOver

GREETING = b"greeting"


def links_of(my_id: int = 2, words: bytes | None = None) -> Links[str]:
    return Links(my_id, GREETING, lambda peer_id: peer_id in (1, 2, 3), lambda: words)


def test_a_message_waits_for_the_connection_and_only_the_last_one_is_kept() -> None:
    """One connection is tried at a time."""
    links = links_of()
    assert links.send(1, b"first") == [ConnectTo(1)]
    assert links.send(1, b"second") == []
    assert links.connected(1, "a") == [SendOver("a", GREETING), SendOver("a", b"second")]
    assert links.send(1, b"third") == [SendOver("a", b"third")]


def test_the_server_with_the_smaller_id_drops_the_connection_it_made() -> None:
    """Its greeting makes the other one connect, and the message leaves over that connection."""
    links = links_of()
    links.send(3, b"vote")
    assert links.connected(3, "mine") == [SendOver("mine", GREETING), CloseLink("mine")]
    links.closed("mine")
    assert links.greeted(3, "theirs") == [SendOver("theirs", b"vote")]
    assert links.by_peer == {3: "theirs"}


def test_a_greeting_of_a_smaller_id_is_answered_by_a_connection() -> None:
    """An older connection with that server ends: it has restarted."""
    links = links_of()
    links.send(1, b"vote")
    links.connected(1, "old")
    assert links.greeted(1, "theirs") == [CloseLink("theirs"), CloseLink("old"), ConnectTo(1)]
    links.closed("old")
    assert links.connected(1, "new") == [SendOver("new", GREETING)]


def test_a_greeting_of_a_greater_id_replaces_an_older_connection() -> None:
    """The end of the old one, which comes later, does not end the new one."""
    links = links_of()
    links.greeted(3, "old")
    assert links.greeted(3, "new") == [CloseLink("old")]
    links.closed("old")
    assert links.peer_of("new") == 3


def test_a_new_connection_begins_with_the_present_vote_when_no_message_waits() -> None:
    """What was sent over the one before may be lost."""
    assert links_of(words=b"vote").greeted(3, "a") == [SendOver("a", b"vote")]
    assert links_of(words=None).greeted(3, "a") == []


def test_a_failed_connection_is_tried_again_while_a_message_waits() -> None:
    """And not while one is under way."""
    links = links_of()
    links.send(1, b"vote")
    assert links.retry() == []
    links.not_connected(1)
    assert links.retry() == [ConnectTo(1)]
    links.connected(1, "a")
    assert links.retry() == []


def test_a_server_with_the_same_id_is_dropped() -> None:
    """Two servers have the same myid."""
    links = links_of()
    assert links.greeted(2, "a") == [CloseLink("a")]
    assert links.by_peer == {}


def test_a_stranger_gets_one_answer_and_the_end() -> None:
    """A server that is to join asks who leads; it is never connected to, and never
    takes a member's place."""
    links = links_of()
    assert links.greeted(99, "a") == []
    assert links.send(99, b"answer") == [SendOver("a", b"answer"), CloseLink("a")]
    assert links.send(99, b"answer") == []
    assert links.by_peer == {}


def test_strangers_are_few_and_those_that_would_need_a_connection_are_dropped() -> None:
    """A connection of a smaller id would have to be made by this server, to an
    address that a stranger names."""
    links = links_of()
    assert links.greeted(0, "a") == [CloseLink("a")]
    for number in range(16):
        assert links.greeted(100 + number, f"s{number}") == []
    assert links.greeted(99, "b") == [CloseLink("b")]
    assert links.greeted(100, "c") == [CloseLink("c")]
    links.closed("s0")
    assert links.greeted(99, "d") == []


def test_a_server_that_is_to_join_is_connected_to_again_when_it_asks_again() -> None:
    """It lost its power: the old connection looks whole, and nothing comes over it."""
    links = Links[str](2, GREETING, lambda peer_id: peer_id in (2, 3), lambda: None, calls_back=True)
    assert links.greeted(1, "a", "zoo1:3888") == [CloseLink("a"), ConnectTo(1, "zoo1:3888")]
    assert links.greeted(1, "b", "zoo1:3888") == [CloseLink("b")]
    links.connected(1, "mine")
    assert links.greeted(1, "c", "zoo1:3888") == [CloseLink("c"), CloseLink("mine"), ConnectTo(1, "zoo1:3888")]


def test_servers_that_are_to_join_are_called_back_and_no_more_than_sixteen() -> None:
    """A stranger at the port could name addresses without end, to which this server
    would connect."""
    links = Links[str](100, GREETING, lambda peer_id: peer_id == 100, lambda: None, calls_back=True)
    for number in range(16):
        called = links.greeted(number, f"a{number}", f"zoo{number}:3888")
        assert called == [CloseLink(f"a{number}"), ConnectTo(number, f"zoo{number}:3888")]
    assert links.greeted(50, "b", "zoo50:3888") == [CloseLink("b")]
    links.not_connected(3)
    assert links.greeted(50, "c", "zoo50:3888") == [CloseLink("c"), ConnectTo(50, "zoo50:3888")]


def test_a_link_that_does_not_work_is_given_up_and_replaced() -> None:
    """The message is not lost."""
    links = links_of()
    links.greeted(3, "a")
    assert links.forget(3, b"vote") == [CloseLink("a"), ConnectTo(3)]
    assert links.pending == {3: b"vote"}
