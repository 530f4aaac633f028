"""What a coordination server writes down about requests that it refuses."""

import logging

import pytest

from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ACL, CreateRequest, CreateTTLRequest, Id
from support.coordination_processor import Harness

BOB = [ACL(31, Id("digest", "bob:SECRET-HASH"))]
PATH = "/" + "x" * 5000


@pytest.mark.parametrize(
    ("opcode", "request_"),
    [
        (OpCode.CREATE, CreateRequest(PATH, b"SECRET-DATA", BOB, 99)),
        (OpCode.CREATE, CreateRequest(PATH, b"SECRET-DATA", None, 0)),
        (OpCode.CREATE2, CreateRequest(PATH, b"SECRET-DATA", BOB, 99)),
        (OpCode.CREATE_CONTAINER, CreateRequest(PATH, b"SECRET-DATA", BOB, 99)),
        (OpCode.CREATE_TTL, CreateTTLRequest(PATH, b"SECRET-DATA", None, 0, 1)),
    ],
)
def test_a_refused_creation_in_a_multi_is_logged_in_one_short_line_without_its_data_and_list(
    caplog: pytest.LogCaptureFixture, opcode: OpCode, request_: object
) -> None:
    """Data and password hashes stay out of the log, and a large request does not fill it."""
    caplog.set_level(logging.DEBUG)
    client = Harness().connect()
    caplog.clear()
    assert client.call(OpCode.MULTI, [(opcode, request_)])[0] == ErrorCode.MARSHALLING_ERROR
    (line,) = caplog.messages
    assert "/xxx" in line
    assert "SECRET" not in line
    assert len(line) < 300
