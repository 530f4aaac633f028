"""Why a connection over a socket reads nothing: its states, in one table.

A connection reads while no reason is against it. The reasons are bits of one number, because
several may hold at once: a client that is being served may leave its answers unread, and be closed
meanwhile.

    reason        begins                                           ends
    PAUSED        the handler serves a request: `pause`            it is answered: `resume`
    UNSENT        the client leaves a mebibyte of answers          all has left: `_flush`
                  unread: `_reads_at_most`, `_must_wait`
    OVER_BUDGET   what waits for all connections is too much:      there is room again: `go_on`
                  `hold_input`, `_reads_at_most`, `_must_wait`
    BEHIND        handing on takes longer than a slice:            others had their turn:
                  `_go_on_later`                                   `_deliver_waiting`
    CLOSING       `close`; what is unsent may still leave          never
    CLOSED        the socket is closed: `_finish`                  never

The functions are those of `barnabas.net.sockets` and `barnabas.net.socket_sending`. After a frame
with a wrong length a connection is PAUSED, too, until its handler closes it. From CLOSING on
nothing is delivered. A pause leaves the reader registered until bytes come, because
most pauses are over before that.

In Kafka: `ChannelState` and `ChannelMuteState`.
"""

__all__ = ["BEHIND", "CLOSED", "CLOSING", "OVER_BUDGET", "PAUSED", "UNSENT"]

PAUSED = 1
UNSENT = 2
OVER_BUDGET = 4
BEHIND = 8
CLOSING = 16
CLOSED = 32
