"""Mutants of the ensemble: defects in election, Zab and sessions, each of which a
simulated ensemble must notice.

``python tests/simulation/ensemble_mutants.py [NAME ...]`` runs them, as `mutants`
does those of clusters.
"""

import sys
from collections.abc import Callable, Sequence

from mutation import patch, rewrite, run_mutants

from simulation.scenarios.ensemble_scenario import EnsemblePlan, run_ensemble_seed
from simulation.scenarios.runs import Result


def skip_the_sync() -> None:
    """Servers acknowledge what is only in the page cache."""
    from barnabas.coordination.storage.transaction_log import TransactionLog

    original = TransactionLog.append

    def append(self: TransactionLog, first_zxid: int, entries: list[bytes]) -> None:
        self._sync = False
        original(self, first_zxid, entries)

    patch(TransactionLog, "append", append)


def acknowledge_before_the_sync() -> None:
    """A learner acknowledges a proposal when it comes."""
    from barnabas.coordination.zab.learner import Learner

    original = Learner._proposed

    def proposed(self: Learner, zxids: Sequence[int], payloads: Sequence[bytes]) -> None:
        original(self, zxids, payloads)
        if self._has_acked:
            self.logged(zxids[-1])

    patch(Learner, "_proposed", proposed)


def commit_without_a_majority() -> None:
    """The leader commits what it has in its own log."""
    from barnabas.coordination.zab.leader import Leader

    def commit(self: Leader) -> None:
        if self._proposals and self._proposals[0][0] <= self._own_acked_zxid:
            self._commit_to(min(self._own_acked_zxid, self._proposals[-1][0]))

    patch(Leader, "_commit", commit)


def ignore_the_epoch() -> None:
    """A leader takes the epoch that its quorum has accepted already, and learners join it."""
    from barnabas.coordination.zab.leader import Leader

    rewrite(
        Leader,
        "discover",
        "self.epoch = max([*accepted.values(), *known]) + 1",
        "self.epoch = max(accepted.values()) or 1",
    )


def accept_two_leaders_in_an_epoch() -> None:
    """Two parts of an ensemble may each elect a leader and follow it, for quorums
    need no member in common."""
    from barnabas.coordination.quorum.verifiers import MajorityQuorum

    rewrite(MajorityQuorum, "contains_quorum", "> len(self.voters) // 2", ">= len(self.voters) // 2")


def elect_whoever_has_the_greatest_id() -> None:
    """Votes and leaders do not look at the history."""
    from barnabas.coordination.election.fast_leader_election import FastLeaderElection
    from barnabas.coordination.zab.leader import Leader

    rewrite(
        FastLeaderElection,
        "_own_vote",
        "Vote(self._current_epoch, self._last_zxid, self.my_id)",
        "Vote(0, 0, self.my_id)",
    )
    rewrite(Leader, "_acked_epoch", "(current_epoch, packet.zxid) > mine", "False")


def apply_out_of_order() -> None:
    """A learner applies the newest proposal when the oldest is committed."""
    from barnabas.coordination.zab.learner import Learner

    def committed(self: Learner, zxids: Sequence[int]) -> None:
        for _ in zxids:
            if self._pending:
                self._environment.apply([self._pending.pop()])

    patch(Learner, "_committed", committed)


def forget_to_truncate() -> None:
    """A learner keeps what the leader does not have."""
    from barnabas.coordination.storage.storage import Storage

    patch(Storage, "truncate", lambda self, zxid: None)


def lose_watches_on_reconnect() -> None:
    """Watches that a client sets again on another server are forgotten."""
    from barnabas.coordination.core.operations import watching

    def forget(watches: object, path: str, client: object) -> None:
        pass

    patch(watching, "_DATA", watching._DATA._replace(add=forget))
    rewrite(watching, "_set_exist_watch", "reading.watches.add_data(path, reading.client)", "pass")


def reuse_sequence_numbers() -> None:
    """Sequential nodes are numbered by the children there are."""
    from mutants import number_nodes_by_children

    number_nodes_by_children()


def expire_on_a_follower() -> None:
    """A follower declares a session over that the leader has not closed."""
    from barnabas.coordination.core.connecting import SessionConnector

    rewrite(SessionConnector, "revalidated", "if not is_alive:", "if True:")


def forget_the_accepted_epoch() -> None:
    """A restart may bring a server back to an epoch that it has left."""
    from barnabas.coordination.zab.epochs import Epochs

    patch(Epochs, "_write", lambda self, name, epoch: None)


def commit_by_the_old_quorum_only() -> None:
    """A reconfiguration is committed without a quorum of the new configuration: leaders and
    elections do not ask for one."""
    from barnabas.coordination.quorum.configuration import QuorumConfiguration
    from barnabas.coordination.zab.configurations import Configurations
    from barnabas.coordination.zab.leader_server import LeaderServer
    from barnabas.coordination.zab.quorums import Quorums

    def see(self: Configurations, configuration: QuorumConfiguration) -> None:
        pass

    rewrite(LeaderServer, "_plan", "if not planned.verifier.contains_quorum(followers | {member.my_id}):", "if False:")
    patch(Quorums, "verifiers", lambda self: [self.current.verifier])
    patch(Configurations, "see", see)


def activate_what_is_only_proposed() -> None:
    """A server uses a configuration from its proposal on."""
    from barnabas.coordination.quorum.configuration import QuorumConfiguration
    from barnabas.coordination.zab.configurations import Configurations

    def see(self: Configurations, configuration: QuorumConfiguration) -> None:
        self.activate(configuration, None, None)

    patch(Configurations, "see", see)


ENSEMBLE_MUTANTS: dict[Callable[[], None], tuple[str, ...]] = {
    skip_the_sync: ("power of most",),
    acknowledge_before_the_sync: ("power of most", "slow disk"),
    commit_without_a_majority: ("ensemble leader", "kill"),
    ignore_the_epoch: ("ensemble leader", "kill"),
    accept_two_leaders_in_an_epoch: ("ensemble parts",),
    elect_whoever_has_the_greatest_id: ("ensemble parts", "kill"),
    apply_out_of_order: (),
    forget_to_truncate: ("ensemble leader",),
    lose_watches_on_reconnect: ("kill", "roll"),
    reuse_sequence_numbers: (),
    expire_on_a_follower: ("kill",),
    forget_the_accepted_epoch: ("power of most", "kill"),
    commit_by_the_old_quorum_only: ("ensemble leader", "ensemble parts", "reconfigure"),
    activate_what_is_only_proposed: ("ensemble parts", "reconfigure"),
}

FAULT_GAPS_S: dict[Callable[[], None], float] = {acknowledge_before_the_sync: 0.12}
"""How often a fault comes where once a second is not enough: here the power must fail between a
proposal and its sync, which takes milliseconds."""


def plan_for(mutant: Callable[[], None]) -> EnsemblePlan:
    """A small ensemble under the faults that can show the defect."""
    return EnsemblePlan(
        servers=3,
        observers=0,
        users=4,
        duration_s=25.0,
        faults=ENSEMBLE_MUTANTS[mutant],
        mean_fault_gap_s=FAULT_GAPS_S.get(mutant, 1.0),
        snap_count=100,
        commit_log_count=500,
        spares=2 if "reconfigure" in ENSEMBLE_MUTANTS[mutant] else 0,
    )


def run(mutant: Callable[[], None], seed: int) -> Result:
    """One run under the faults that can show the defect."""
    return run_ensemble_seed(seed, plan=plan_for(mutant))


if __name__ == "__main__":
    sys.exit(run_mutants(ENSEMBLE_MUTANTS, run))
