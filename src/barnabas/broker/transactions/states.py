"""The states of a transaction, and which may follow which (Kafka's `TransactionState`).

    from                         when                                     to
    Empty, CompleteCommit        partitions are added                     Ongoing
    or CompleteAbort             InitProducerId                           Empty
                                 EndTxn aborts, in version 2              PrepareAbort
    Ongoing                      partitions are added                     Ongoing
                                 EndTxn                                   PrepareCommit
                                                                          or PrepareAbort
                                 a newer producer, or the timeout         PrepareAbort
    PrepareCommit                all markers are written                  CompleteCommit
    PrepareAbort                 all markers are written                  CompleteAbort

Empty, CompleteCommit and CompleteAbort lead to Dead when the transactional id has not been used for
a long time. Kafka passes through PrepareEpochFence, which is never stored, on the way from Ongoing
to PrepareAbort when it fences a producer. Here the epoch is raised and PrepareAbort prepared in one
step; the state stands in the table for its name and number.
"""

from enum import Enum

from barnabas.wire.kafka.errors import ErrorCode

__all__ = [
    "END_OUTCOMES",
    "END_OUTCOMES_V2",
    "TRANSACTION_TRANSITIONS",
    "TransactionState",
    "state_of_number",
    "state_of_text",
]


class TransactionState(Enum):
    """The values are Kafka's names, as DescribeTransactions gives them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def number(self) -> int:
        """The state in records of ``__transaction_state``."""
        return _NUMBERS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether an unused transactional id may be forgotten."""
        return TransactionState.DEAD in TRANSACTION_TRANSITIONS[self]


_S = TransactionState
_NUMBERS = {state: number for number, state in enumerate(TransactionState)}
_BY_NUMBER = tuple(TransactionState)
_BY_TEXT = {state.value: state for state in TransactionState}

TRANSACTION_TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    # With transaction version 2 a transaction without partitions can be aborted, for the new epoch:
    # Empty and the complete states lead to PrepareAbort.
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    # The tombstone is on its way to the log; only the failure to write it leads
    # back, to the state before.
    _S.DEAD: frozenset(),
}

END_OUTCOMES: dict[tuple[TransactionState, bool], TransactionState | ErrorCode] = {
    (_S.ONGOING, True): _S.PREPARE_COMMIT,
    (_S.ONGOING, False): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.COMPLETE_COMMIT, True): ErrorCode.NONE,
    (_S.COMPLETE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False): ErrorCode.NONE,
    (_S.EMPTY, True): ErrorCode.INVALID_TXN_STATE,
    (_S.EMPTY, False): ErrorCode.INVALID_TXN_STATE,
}
"""What EndTxn of version 1 (commit or not) does in each state: the next state, or the answer. A
repeated EndTxn is answered with the outcome of the first."""

END_OUTCOMES_V2: dict[tuple[TransactionState, bool, bool], TransactionState | ErrorCode] = {
    (_S.ONGOING, True, False): _S.PREPARE_COMMIT,
    (_S.ONGOING, False, False): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, True, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.PREPARE_COMMIT, False, True): ErrorCode.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, True, True): ErrorCode.INVALID_TXN_STATE,
    (_S.PREPARE_ABORT, False, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (_S.COMPLETE_COMMIT, True, True): ErrorCode.NONE,
    (_S.COMPLETE_COMMIT, False, True): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True, True): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False, True): ErrorCode.NONE,
    (_S.COMPLETE_COMMIT, True, False): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, False): _S.PREPARE_ABORT,
    (_S.COMPLETE_ABORT, True, False): ErrorCode.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False, False): _S.PREPARE_ABORT,
    (_S.EMPTY, True, False): ErrorCode.INVALID_TXN_STATE,
    (_S.EMPTY, False, False): _S.PREPARE_ABORT,
}
"""The same for version 2 (KIP-890), with whether the request is repeated: it has the epoch before.
A combination that is not here belongs to a producer that is fenced, which is answered before. A
producer may abort what it has not begun, because only the coordinator knows whether a partition was
added."""


def state_of_number(number: int) -> TransactionState | None:
    """The state of a record of ``__transaction_state``; None for a number that is not known."""
    return _BY_NUMBER[number] if 0 <= number < len(_BY_NUMBER) else None


def state_of_text(text: str) -> TransactionState | None:
    """The state with one of Kafka's names."""
    return _BY_TEXT.get(text)
