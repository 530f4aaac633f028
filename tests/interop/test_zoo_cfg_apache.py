"""The verdicts on files zoo.cfg that the unit test compares with are those of
Apache's QuorumPeerConfig."""

from pathlib import Path

import pytest

from support.needs import needs_reference
from support.reference import apache_tool
from support.zoo_cfg_table import FILES

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

PROBE = Path(__file__).parents[1] / "support" / "ZooCfgProbe.java"


def test_the_recorded_verdicts_are_those_of_apaches_server(tmp_path: Path) -> None:
    """Every file of the table, in one JVM."""
    paths = {str(file.write(tmp_path / str(number))): file for number, file in enumerate(FILES)}
    answers = apache_tool(str(PROBE), text="".join(f"{path}\n" for path in paths)).stdout.splitlines()
    found = dict(line.split("\t", 1) for line in answers if "\t" in line)
    verdicts = {paths[path].name: verdict.replace(str(Path(path).parent), "{dir}") for path, verdict in found.items()}
    assert verdicts == {file.name: file.apache for file in FILES}
