"""Times as people type them: 10:00, 2026-11-22, 2026-11-22T10:00, 15m, 2h, 3d."""

import re
from datetime import datetime, timedelta

from barnabas.base.errors import ConfigError
from barnabas.base.record_times import searched_ms

__all__ = ["parse_time_ms"]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_time_ms(text: str, now: datetime, option: str) -> int:
    """The time in ms since 1970; ``now`` has the time zone. Raises `ConfigError`."""
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text, re.ASCII)
    if ago is not None:
        try:
            when = now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        except OverflowError:
            raise ConfigError(f"{option} {text}: this is before the year 1") from None
    elif clock := re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", text, re.ASCII):
        hour, minute, second = int(clock[1]), int(clock[2]), int(clock[3] or 0)
        if hour > 23 or minute > 59 or second > 59:
            raise ConfigError(f"{option} {text}: there is no such time of day")
        when = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        if when > now:  # half past ten, asked in the morning, is yesterday's
            when -= timedelta(days=1)
    else:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(
                f"{option} {text}: a time is expected, such as 10:00, 15m (ago), 2026-11-22 or 2026-11-22T10:00"
            ) from None
        if when.tzinfo is None:
            when = when.replace(tzinfo=now.tzinfo)
    return searched_ms(when)
