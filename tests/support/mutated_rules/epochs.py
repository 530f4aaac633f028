"""Requests of earlier lives: epochs of brokers, controllers, leaders and partitions."""

from support.mutated_rules import Rule

__all__ = ["RULES"]

RULES = [
    Rule(
        "AlterPartition of a broker's earlier life is refused",
        "broker/controller/isr_change.py",
        "if info is None or info.epoch != broker_epoch:",
        "if info is None:",
        "test_controller_decisions.py::test_a_leader_of_an_earlier_life_does_not_change_its_isr",
    ),
    Rule(
        "requests for an earlier life of the broker are refused",
        "broker/apis/control_requests.py",
        "if broker_epoch != _NO_EPOCH and broker_epoch < self._broker_epoch():",
        "if False:",
        "test_broker_control_plane.py::test_an_old_controller_and_news_for_an_earlier_life_are_refused",
    ),
    Rule(
        "requests of a replaced controller are refused",
        "broker/apis/control_requests.py",
        "if not self._replicas.accept_controller_epoch(controller_epoch):",
        "if False:",
        "test_broker_control_plane.py::test_an_old_controller_and_news_for_an_earlier_life_are_refused",
    ),
    Rule(
        "requests of a controller that was never elected are refused",
        "broker/apis/control_requests.py",
        "if request.message.controller_epoch <= self._elected_epoch:",
        "if True:",
        "test_broker_control_plane.py::test_an_epoch_to_which_no_controller_was_elected_changes_nothing",
    ),
    Rule(
        "an epoch that is above the znode's is refused",
        "broker/apis/control_requests.py",
        "elif epoch <= self._elected_epoch:",
        "elif True:",
        "test_broker_control_plane.py::test_an_epoch_to_which_no_controller_was_elected_changes_nothing",
    ),
    Rule(
        "a coordinator that may have been replaced asks before it answers",
        "broker/apis/offset_fetch.py",
        "if parts.leadership_confirmation.is_needed:",
        "if False:",
        "test_coordinators_confirmation.py::test_a_replaced_coordinator_that_has_lost_its_session_gives_no_offsets",
    ),
    Rule(
        "a member that knows a later leader epoch does not confirm an earlier one",
        "broker/coordinators/confirmation.py",
        "return codes == [ErrorCode.UNKNOWN_LEADER_EPOCH]",
        "return True",
        "test_coordinators_confirmation.py::test_a_member_that_does_not_confirm_makes_the_coordinator_doubtful",
    ),
    Rule(
        "requests wait for an epoch no longer than their sender does",
        "broker/apis/control_requests.py",
        "return request.is_abandoned or self._now_ms() - request.received_ms > self._timeout_ms",
        "return request.is_abandoned",
        "test_broker_control_plane.py::test_what_waits_for_an_epoch_is_freed_when_its_sender_waits_no_longer",
    ),
    Rule(
        "after a refusal the next reading waits",
        "broker/apis/control_requests.py",
        "if self._has_refused:",
        "if False:",
        "test_broker_control_plane.py::test_many_forged_epochs_cost_a_few_lines_and_readings",
    ),
    Rule(
        "a member without a replica does not confirm that nobody else leads",
        "broker/coordinators/confirmation.py",
        "current_leader_epoch=epoch + 1,",
        "current_leader_epoch=epoch,",
        "test_coordinators_confirmation.py::"
        "test_leadership_is_confirmed_when_each_other_member_in_sync_knows_no_later_epoch",
    ),
    Rule(
        "a broker that has not registered in its new session may have been replaced",
        "broker/membership/service.py",
        "if event is SessionEvent.CREATED:",
        "if False:",
        "test_coordinators_confirmation.py::"
        "test_a_replaced_coordinator_gives_no_old_offsets_before_it_is_registered_in_its_new_session",
    ),
    Rule(
        "the controller epoch does not go back",
        "broker/replication/replica_manager.py",
        "        if epoch < self.controller_epoch:\n            return False\n",
        "",
        "test_broker_control_plane.py::test_an_old_controller_and_news_for_an_earlier_life_are_refused",
    ),
    Rule(
        "StopReplica of an earlier leader epoch is refused",
        "broker/replication/replica_manager.py",
        "if leader_epoch not in (-1, -2) and leader_epoch < partition.leader_epoch:",
        "if False:",
        "test_broker_control_plane.py::test_a_deleted_partition_is_gone_with_its_folder",
    ),
    Rule(
        "a shutdown request of an earlier life is refused",
        "broker/controller/broker_change.py",
        "if 0 <= broker_epoch < info.epoch:",
        "if False:",
        "test_controller_decisions.py::test_a_controlled_shutdown_moves_leaders_and_answers_what_is_left",
    ),
    Rule(
        "AlterPartition of an earlier leader epoch is refused",
        "broker/controller/isr_change.py",
        "    if change.leader_epoch < current.leader_epoch:\n        return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
        "test_controller_decisions.py::test_a_leader_changes_its_isr_under_its_epochs",
    ),
    Rule(
        "AlterPartition of an earlier partition epoch is refused",
        "broker/controller/isr_change.py",
        "    if change.partition_epoch < current.version:\n        return ErrorCode.INVALID_UPDATE_VERSION\n",
        "",
        "test_controller_decisions.py::test_an_isr_that_was_based_on_an_older_one_is_refused_before_anything_is_written",
    ),
    Rule(
        "AlterPartition is the leader's alone",
        "broker/controller/isr_change.py",
        "    if broker != current.leader:\n",
        "    if False:\n",
        "test_controller_decisions.py::test_an_isr_is_changed_by_its_leader_alone",
    ),
    Rule(
        "a replica that was restarted does not join the ISR",
        "broker/controller/isr_change.py",
        "if member not in current.isr and epoch not in (_UNKNOWN_EPOCH, context.brokers[member].epoch):",
        "if False:",
        "test_controller_decisions.py::test_a_replica_that_was_restarted_since_it_fetched_does_not_join",
    ),
    Rule(
        "a dead replica does not join the ISR",
        "broker/controller/isr_change.py",
        "if any(not context.is_live(member) for member in change.isr):",
        "if False:",
        "test_controller_decisions.py::test_a_leader_changes_its_isr_under_its_epochs",
    ),
    Rule(
        "the ISR holds its leader",
        "broker/controller/isr_change.py",
        "if broker not in change.isr or len(set(change.isr)) != len(change.isr):",
        "if len(set(change.isr)) != len(change.isr):",
        "test_controller_decisions.py::test_an_isr_without_its_leader_or_with_a_member_twice_is_refused",
    ),
    Rule(
        "the epoch of a fetch session is compared",
        "broker/replication/fetch_sessions.py",
        "        if found.epoch != epoch:\n            return ErrorCode.INVALID_FETCH_SESSION_EPOCH\n",
        "",
        "test_fetch_sessions.py::test_unknown_sessions_and_wrong_epochs_are_refused",
    ),
]
