"""From a frame to a handler, and from its answer back to the connection.

One request of a connection is served at a time, in order, as Apache's brokers do it: the connection is paused until the
answer is given. Handlers that answer at once cost no task and no pause.
"""
