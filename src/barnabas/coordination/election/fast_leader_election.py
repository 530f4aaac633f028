"""The election of a leader as a state machine without I/O: ZooKeeper's `FastLeaderElection`.

A server that looks for a leader proposes itself to all voters, and takes over each better vote that
it hears of. When a quorum has the same vote, it waits a moment for a better one, and the election
is over. Rounds keep elections apart: votes of an older round do not count, and a newer one begins
the count again. A server that comes late, while the others have a leader, asks them; it follows
when a quorum follows the same leader and that leader says so itself.

     look ──> LOOKING ──quorum──> LEADING, if the vote is for this server
                 ^                FOLLOWING, or OBSERVING without a vote
                 └──── look ──────────┘

Each method takes the time and returns effects: notifications to send, and at most one `Elected`.
`wakes_at_ms` says when `tick` is due.

Invariants:

- In one round a server's vote never gets worse.
- An `Elected` names a server for which a quorum voted in that round, as far as this server heard.
- In any state, a server that looks for a leader gets an answer, but for one without
  a vote from another one.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.coordination.election.messages import MAX_ROUND, MalformedNotificationError, Notification
from barnabas.coordination.election.vote import NO_VOTE, Ballot, PeerState, Vote
from barnabas.coordination.quorum.configuration import QuorumConfiguration, parse_dynamic_text
from barnabas.coordination.quorum.members import QuorumServer
from barnabas.coordination.quorum.verifiers import AckTracker

__all__ = ["Elected", "ElectionEffect", "FastLeaderElection", "NewerConfiguration", "SendNotification"]

logger = logging.getLogger(__name__)

FINALIZE_WAIT_MS = 200
"""How long a better vote may still come once a quorum agrees."""


@dataclass(frozen=True, slots=True)
class SendNotification:
    """Send this server's vote to another."""

    receiver: int
    notification: Notification


@dataclass(frozen=True, slots=True)
class Elected:
    """The election is over: this server is LEADING, FOLLOWING or OBSERVING."""

    state: PeerState
    leader_id: int
    zxid: int
    peer_epoch: int
    round: int


@dataclass(frozen=True, slots=True)
class NewerConfiguration:
    """Another member has a newer configuration, which is used from now on.

    Without ``reconfigEnabled`` it differs in the version alone: Apache ZooKeeper's servers count
    versions when it is set there, and refuse leaders with an older one.
    """

    configuration: QuorumConfiguration


ElectionEffect = SendNotification | Elected | NewerConfiguration


def _agreeing(ballots: Mapping[int, Ballot], ballot: Ballot) -> Iterator[int]:
    return (server_id for server_id, cast in ballots.items() if cast.agrees_with(ballot))


def _log_notification(state: PeerState, sender: int, notification: Notification) -> None:
    vote = notification.vote
    logger.info(
        "Notification: my state: %s; n.sid: %d, n.state: %s, n.leader: %d, n.round: 0x%x, n.peerEpoch: 0x%x, "
        "n.zxid: 0x%x, message format version: 0x%x, n.config version: 0x%x",
        *(state.name, sender, notification.state.name, vote.leader, notification.round),
        *(vote.peer_epoch, vote.zxid),
        *(notification.format_version, notification.configuration_version),
    )


class FastLeaderElection:
    """One server's part in elections."""

    __slots__ = (
        "_ballots",
        "_can_reconfigure",
        "_configuration_text",
        "_current_epoch",
        "_early",
        "_established",
        "_finalize_at_ms",
        "_interval_ms",
        "_last_zxid",
        "_max_interval_ms",
        "_min_interval_ms",
        "_next_configuration",
        "_resend_at_ms",
        "configuration",
        "my_id",
        "round",
        "state",
        "vote",
    )

    def __init__(
        self,
        my_id: int,
        configuration: QuorumConfiguration,
        *,
        following: QuorumConfiguration | None = None,
        min_interval_ms: int = 200,
        max_interval_ms: int = 60_000,
        can_reconfigure: bool = False,
    ) -> None:
        """``following`` is a configuration that is proposed and not in force; see `reconfigure`."""
        self.my_id = my_id
        self._can_reconfigure = can_reconfigure
        self._min_interval_ms = min_interval_ms
        self._max_interval_ms = max(max_interval_ms, min_interval_ms)
        self.state = PeerState.LOOKING
        self.round = 0
        """The round of the present or the last election; ZooKeeper's logical clock
        and election epoch."""
        self.vote = NO_VOTE
        """The proposal while LOOKING, afterwards the vote that won."""
        self._last_zxid = 0
        self._current_epoch = 0
        self._ballots: dict[int, Ballot] = {}  # of this round, the own one included
        # Of those that have a leader, whatever their round.
        self._established: dict[int, Ballot] = {}
        # The last of each voter, from before the first election.
        self._early: dict[int, Notification] = {}
        self._interval_ms = min_interval_ms
        self._resend_at_ms: int | None = None
        self._finalize_at_ms: int | None = None
        self.reconfigure(configuration, following)

    # What others ask

    @property
    def is_looking(self) -> bool:
        """Whether an election is under way."""
        return self.state is PeerState.LOOKING and self._resend_at_ms is not None

    @property
    def wakes_at_ms(self) -> int | None:
        """When `tick` is due; None while there is no election."""
        if self._resend_at_ms is None or self._finalize_at_ms is None:
            return self._resend_at_ms
        return min(self._resend_at_ms, self._finalize_at_ms)

    @property
    def voters(self) -> frozenset[int]:
        """The voters of the configuration, and of the one that is to follow it."""
        following = self._next_configuration
        return self.configuration.voters | (following.voters if following is not None else frozenset())

    def server(self, server_id: int) -> QuorumServer | None:
        """A member by its id, of the configuration or of the one that is to follow it."""
        following = self._next_configuration
        found = self.configuration.servers.get(server_id)
        return following.servers.get(server_id) if found is None and following is not None else found

    def notification(self) -> Notification:
        """What this server says to others at this moment."""
        return Notification(self.state, self.vote, self.round, self._configuration_text)

    # What happens

    def reconfigure(self, configuration: QuorumConfiguration, following: QuorumConfiguration | None = None) -> None:
        """Use another configuration from the next election on.

        ``following`` is proposed and not in force yet."""
        self.configuration = configuration
        self._next_configuration = following
        self._configuration_text = configuration.text().encode()

    def look(self, last_zxid: int, current_epoch: int, now_ms: int) -> list[ElectionEffect]:
        """Begin an election: the server has started, or lost its leader, or its followers.

        ``last_zxid`` is that of the last transaction in its log, ``current_epoch`` the last
        epoch that it has joined.
        """
        self._last_zxid, self._current_epoch = last_zxid, current_epoch
        if self.state is not PeerState.LOOKING:
            logger.info("Peer state changed: looking")
        logger.info("LOOKING")
        effects = self._begin(now_ms, self.round + 1 if self.round + 1 < MAX_ROUND else 1)
        early, self._early = self._early, {}
        for sender, notification in early.items():
            effects += self.receive(sender, notification, now_ms)
        return effects

    def stop(self) -> None:
        """End an election without a result; the server shuts down."""
        self._resend_at_ms = self._finalize_at_ms = None

    def establish_epoch(self, epoch: int) -> None:
        """A leader has begun its epoch: the vote is from then on one of members with
        a leader in this epoch.

        ZooKeeper's `QuorumPeer.updateElectionVote`.
        """
        if self.state is not PeerState.LOOKING:
            self.vote = self.vote._replace(peer_epoch=epoch)

    def designate(self, leader_id: int, zxid: int, epoch: int) -> None:
        """A reconfiguration at ``zxid`` has made this server the leader, or one that it
        follows: without an election.

        ZooKeeper's `QuorumPeer.updateVote`.
        """
        self._decide(Vote(epoch, zxid, leader_id), self.round)

    def tick(self, now_ms: int) -> list[ElectionEffect]:
        """Time has passed: end the election, or send the vote again."""
        if self._finalize_at_ms is not None and now_ms >= self._finalize_at_ms:
            return [self._decide(self.vote, self.round)]
        if self._resend_at_ms is None or now_ms < self._resend_at_ms:
            return []
        self._interval_ms = min(2 * self._interval_ms, self._max_interval_ms)
        self._resend_at_ms = now_ms + self._interval_ms
        logger.info("Notification time out: %d ms", self._interval_ms)
        return self._send_to_all()

    def receive(self, sender: int, notification: Notification, now_ms: int) -> list[ElectionEffect]:
        """Another server's vote.

        Raises `MalformedNotificationError` if its configuration cannot be read."""
        adopted = self._adopt(sender, notification, now_ms)
        _log_notification(self.state, sender, notification)
        return adopted + self._receive(sender, notification, now_ms)

    def _receive(self, sender: int, notification: Notification, now_ms: int) -> list[ElectionEffect]:
        voters = self.voters
        if sender not in voters:
            # Two servers without a vote have nothing to say to each other, and would
            # answer without end.
            return [] if self.is_looking and self.vote == NO_VOTE else self._answer(sender, notification)
        if not self.is_looking:
            if self.state is not PeerState.LOOKING:
                return self._answer(sender, notification)
            self._early[sender] = notification
            return []
        if notification.vote == NO_VOTE:
            return self._receive_without_vote(sender, notification, now_ms)
        if notification.vote.leader not in voters:
            return []  # from another configuration
        match notification.state:
            case PeerState.LOOKING:
                return self._receive_looking(sender, notification, now_ms)
            case PeerState.FOLLOWING | PeerState.LEADING:
                return self._receive_established(sender, notification)
            case _:
                return []

    # Rounds and votes

    def _begin(self, now_ms: int, round_number: int) -> list[ElectionEffect]:
        self.state = PeerState.LOOKING
        self.round = round_number
        self._established.clear()
        self._interval_ms = self._min_interval_ms
        self._resend_at_ms = now_ms + self._interval_ms
        self._start_round(self._own_vote())
        logger.info("New election. My id = %d, proposed zxid=0x%x", self.my_id, self._last_zxid)
        return [*self._send_to_all(), *self._count(now_ms)]

    def _own_vote(self) -> Vote:
        return Vote(self._current_epoch, self._last_zxid, self.my_id) if self._has_vote else NO_VOTE

    @property
    def _has_vote(self) -> bool:
        return self.my_id in self.configuration.voters

    def _start_round(self, vote: Vote) -> None:
        self._ballots.clear()
        self._propose(vote)

    def _propose(self, vote: Vote) -> None:
        self.vote = vote
        self._finalize_at_ms = None
        if self.my_id in self.voters:
            # A server that is only in the next configuration counts its own vote, too: that
            # configuration's quorum may need it.
            self._ballots[self.my_id] = Ballot(vote, self.round, PeerState.LOOKING)

    def _is_better(self, vote: Vote, than: Vote) -> bool:
        return self.configuration.verifier.weight(vote.leader) != 0 and vote > than

    def _receive_looking(self, sender: int, notification: Notification, now_ms: int) -> list[ElectionEffect]:
        vote, round_number = notification.vote, notification.round
        if vote.zxid == -1:
            return []  # the sender has not loaded its data
        effects: list[ElectionEffect] = []
        if round_number < self.round:
            return [SendNotification(sender, self.notification())]
        if round_number > self.round:
            effects += self._join_round(round_number, vote)
        elif self._is_better(vote, self.vote):
            self._propose(vote)
            effects += self._send_to_all()
        elif vote < self.vote:
            # An earlier one may be lost.
            effects.append(SendNotification(sender, self.notification()))
        self._ballots[sender] = Ballot(vote, round_number, PeerState.LOOKING)
        return effects + self._count(now_ms)

    def _join_round(self, round_number: int, vote: Vote) -> list[ElectionEffect]:
        """Another server is in a newer round: this server's vote there is the better
        of its own and that one."""
        self.round = round_number
        own = self._own_vote()
        self._start_round(vote if self._is_better(vote, own) else own)
        return self._send_to_all()

    def _receive_without_vote(self, sender: int, notification: Notification, now_ms: int) -> list[ElectionEffect]:
        """A server that only the next configuration names as a voter has no vote of its own,
        and takes over another's.

        That configuration's quorum may need it, so the two must meet in one round.
        """
        if notification.state is not PeerState.LOOKING:
            return []
        if notification.round > self.round:
            return [*self._join_round(notification.round, NO_VOTE), *self._count(now_ms)]
        return [] if self.vote == NO_VOTE else self._answer(sender, notification)

    def _count(self, now_ms: int) -> list[ElectionEffect]:
        """See whether a quorum has this server's vote, and decide at once when no
        other vote can come."""
        mine = Ballot(self.vote, self.round, PeerState.LOOKING)
        if not self._has_quorum(self._ballots, mine):
            self._finalize_at_ms = None
            return []
        if all(voter in self._ballots and self._ballots[voter].agrees_with(mine) for voter in self.voters):
            return [self._decide(self.vote, self.round)]
        if self._finalize_at_ms is None:
            self._finalize_at_ms = now_ms + FINALIZE_WAIT_MS
        return []

    def _receive_established(self, sender: int, notification: Notification) -> list[ElectionEffect]:
        """A server that has a leader says so: join when a quorum and the leader itself agree."""
        vote, round_number = notification.vote, notification.round
        ballot = Ballot(vote, round_number, notification.state, has_epoch=notification.format_version > 0)
        if round_number == self.round:
            self._ballots[sender] = ballot
            if self._is_established(self._ballots, ballot):
                return [self._decide(vote, round_number)]
        self._established[sender] = ballot
        if self._is_established(self._established, ballot):
            self.round = round_number
            return [self._decide(vote, round_number)]
        return []

    def _is_established(self, ballots: Mapping[int, Ballot], ballot: Ballot) -> bool:
        """Whether a quorum of the configuration in force follows a leader that leads.

        The quorum of a configuration that is only proposed is not asked for. If that one had been
        committed, a quorum of the present one would have it in its log, and none of them would have
        been elected without it. A server that alone knows of such a proposal would otherwise never
        come back. (Apache ZooKeeper's servers ask for both quorums here.)
        """
        agreeing = _agreeing(ballots, ballot)
        return AckTracker([self.configuration.verifier], agreeing).has_all_quorums() and self._leads(ballots, ballot)

    def _leads(self, ballots: Mapping[int, Ballot], ballot: Ballot) -> bool:
        """Whether the leader confirms that it leads; others may still follow one that has died."""
        leader = ballot.vote.leader
        if leader == self.my_id:
            return ballot.round == self.round
        own = ballots.get(leader)
        return own is not None and own.state is PeerState.LEADING

    def _has_quorum(self, ballots: Mapping[int, Ballot], ballot: Ballot) -> bool:
        verifiers = [self.configuration.verifier]
        if self._next_configuration is not None:
            verifiers.append(self._next_configuration.verifier)
        return AckTracker(verifiers, _agreeing(ballots, ballot)).has_all_quorums()

    def _decide(self, vote: Vote, round_number: int) -> Elected:
        self._resend_at_ms = self._finalize_at_ms = None
        self._ballots.clear()
        self._established.clear()
        self.vote = vote
        if vote.leader == self.my_id:
            self.state = PeerState.LEADING
        elif self.my_id in self.configuration.observers:
            self.state = PeerState.OBSERVING
        else:
            self.state = PeerState.FOLLOWING
        logger.info(
            "Elected server %d in round 0x%x with epoch 0x%x and zxid 0x%x",
            *(vote.leader, round_number, vote.peer_epoch, vote.zxid),
        )
        logger.info("Peer state changed: %s", self.state.name.lower())
        logger.info(self.state.name)
        return Elected(self.state, vote.leader, vote.zxid, vote.peer_epoch, round_number)

    # Messages

    def _send_to_all(self) -> list[ElectionEffect]:
        notification = self.notification()
        return [SendNotification(voter, notification) for voter in sorted(self.voters - {self.my_id})]

    def _answer(self, sender: int, notification: Notification) -> list[ElectionEffect]:
        """Answer a server that looks.

        An answer to any other would be answered again, without end."""
        if notification.state is not PeerState.LOOKING or sender == self.my_id:
            return []
        return [SendNotification(sender, self.notification())]

    def _adopt(self, sender: int, notification: Notification, now_ms: int) -> list[ElectionEffect]:
        """Take over the newer configuration of a member, and with other members
        begin the election again."""
        text = notification.configuration
        if not text or text == self._configuration_text:
            return []
        try:
            configuration = parse_dynamic_text(text.decode())
        except (ConfigError, UnicodeDecodeError) as error:
            raise MalformedNotificationError(f"the configuration in a notification cannot be read: {error}") from None
        known = self.configuration
        if configuration.version <= known.version or self.server(sender) is None:
            return []
        is_same = configuration.has_members_of(known)
        if self._can_reconfigure:
            if self.state is not PeerState.LOOKING:
                return []  # the leader says which configuration is in force
        elif not is_same:
            logger.warning(
                "Server %d has another configuration of the ensemble, of the newer version 0x%x. Restart this server with it",
                *(sender, configuration.version),
            )
            return []
        following = self._next_configuration
        if following is not None and following.version <= configuration.version:
            following = None
        logger.info("Received version: %x my version: %x", configuration.version, known.version)
        self.reconfigure(configuration, following)
        effects: list[ElectionEffect] = [NewerConfiguration(configuration)]
        # In the same round: a server that loses its vote by this must not be ahead
        # of those that have one.
        return effects if is_same or not self.is_looking else effects + self._begin(now_ms, self.round)
