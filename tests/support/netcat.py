"""What ``nc HOST PORT`` does with standard input, for machines without it."""

import socket
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as connection:
    connection.sendall(sys.stdin.buffer.read())
    connection.shutdown(socket.SHUT_WR)
    while received := connection.recv(65536):
        sys.stdout.buffer.write(received)
