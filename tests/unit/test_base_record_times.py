"""Times of records: what is shown, compared and converted, also where a time does not fit."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.numbers import LARGEST_INT64
from barnabas.base.record_times import (
    FIRST_MS,
    LAST_MS,
    known_time,
    microseconds,
    searched_ms,
    time_as_text,
    time_in_zone,
)
from barnabas.cli.groups.reset_offsets import duration_ms, timestamp_ms
from barnabas.cli.options.times import parse_time_ms
from barnabas.cli.output.readable import record_text
from barnabas.client.arguments import check_times, check_timestamp
from barnabas.client.errors import ConfigurationError
from barnabas.client.records import Record

MICROSECONDS, NANOSECONDS = 1_764_201_600_000_000, 1_764_201_600_000_000_000
ANY_TIME = st.one_of(
    st.integers(-LARGEST_INT64 - 1, LARGEST_INT64),
    st.integers(-10, 10),
    st.sampled_from([FIRST_MS - 1, FIRST_MS, LAST_MS, LAST_MS + 1]),
)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (None, "-----------------------"),
        (-1, "-----------------------"),
        (0, "1970-01-01 00:00:00.000"),
        (-5_000, "1969-12-31 23:59:55.000"),
        (1_764_201_600_123, "2025-11-27 00:00:00.123"),
        (FIRST_MS, "0001-01-01 00:00:00.000"),
        (LAST_MS, "9999-12-31 23:59:59.999"),
        (LAST_MS + 1, "253402300800000 ms     "),
        (MICROSECONDS, "1764201600000000 ms    "),
        (NANOSECONDS, "1764201600000000000 ms "),
        (-LARGEST_INT64 - 1, "-9223372036854775808 ms"),
    ],
)
def test_each_time_has_a_text_of_one_length(time: int | None, text: str) -> None:
    """None for a record without a time, and the number for one that no calendar holds."""
    assert time_as_text(time, UTC) == text
    assert len(text) == 23


@given(ANY_TIME, ZONES)
def test_no_time_and_no_zone_ends_with_an_error(time: int, zone: timezone) -> None:
    """At the begin of the year 1 and the end of 9999 a zone's offset leads out of
    what Python holds."""
    assert len(time_as_text(time, zone)) == 23
    when = time_in_zone(time, zone)
    assert when is None or when == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
    assert (time_in_zone(time, UTC) is None) == (not FIRST_MS <= time <= LAST_MS)


@given(st.lists(ANY_TIME, min_size=1))
def test_columns_of_times_have_what_single_times_have(times: list[int]) -> None:
    """Whole batches and single records are read by the same rule."""
    arrow_records = pytest.importorskip("barnabas.pipelines.connector.arrow_records")
    column = arrow_records._times(np.array(times, np.int64))
    assert column.cast("int64").to_pylist() == [microseconds(each) for each in times]


def test_a_record_with_a_time_in_microseconds_is_shown() -> None:
    """Producers give microseconds by mistake; a tool that shows records is how they are found."""
    record = Record("t", 0, 7, None, b"found", MICROSECONDS, 0, ())
    assert record_text(record, pretty=False) == "0:7 1764201600000000 ms     found"
    assert known_time(-1) is None
    assert known_time(-2) == -2


def test_a_time_before_1970_is_searched_as_the_first_one() -> None:
    """A negative number would mean an end of the log: -1 is the millisecond before
    1970, and the latest offset."""
    last_of_1969 = datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert searched_ms(last_of_1969) == 0
    assert parse_time_ms("1969-12-31T23:59:59.999", last_of_1969, "--to") == 0
    assert timestamp_ms("1969-12-31T23:59:59.999Z") == 0
    assert timestamp_ms("9999-12-31T23:59:59.999-14:00") == LAST_MS + 14 * 3_600_000


@pytest.mark.parametrize("text", ["999999999999d", "9" * 400 + "s", "99999999999999999999h"])
def test_a_time_too_long_ago_is_an_error(text: str) -> None:
    """It names the option and the text."""
    with pytest.raises(ConfigError, match="--since 9+[sdh]: this is before the year 1"):
        parse_time_ms(text, datetime.now(UTC), "--since")


@pytest.mark.parametrize(
    "text", ["P999999999999999D", "-PT99999999999999999999H", f"PT{'9' * 400}S", "P" + "9" * 5000 + "D"]
)
def test_a_duration_that_does_not_fit_is_an_error(text: str) -> None:
    """In either direction."""
    with pytest.raises(ConfigError, match="--by-duration .*: the duration is too long"):
        duration_ms(text)


def test_clients_refuse_times_of_more_than_64_bits() -> None:
    """Before a library ends with an OverflowError, which names no argument."""
    check_timestamp(NANOSECONDS)
    for wrong in (0, -1, LARGEST_INT64 + 1, True):
        with pytest.raises(ConfigurationError, match="timestamp_ms="):
            check_timestamp(wrong)
    with pytest.raises(ConfigurationError, match="is no time in milliseconds since 1970"):
        check_times({("t", 0): LARGEST_INT64 + 1})  # type: ignore[dict-item]
