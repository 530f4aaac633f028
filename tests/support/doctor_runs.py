"""`barnabas doctor` in a test: a rule applied to a cluster, and its mending commands run."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import main
from support.waiting import eventually

__all__ = ["Doctor"]


class Doctor:
    """The command on one cluster, in this process.

    ``folder`` is the working directory, to which commands write plans."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.bootstrap = bootstrap
        self.capsys = capsys
        self.folder = folder

    def diagnose(self, *options: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and the report."""
        self.capsys.readouterr()
        code = main(["doctor", "--bootstrap-server", self.bootstrap, "--output", "json", *options])
        shown = self.capsys.readouterr()
        assert shown.out, shown.err
        return code, json.loads(shown.out)

    def finding(self, rule: str, *options: str) -> dict[str, Any] | None:
        """What a rule finds; None for nothing."""
        code, report = self.diagnose("--only", rule, *options)
        assert report["rules"][0]["outcome"] in ("passed", "found"), report
        assert code == (1 if report["findings"] else 0), report
        return next(iter(report["findings"]), None)

    def wait_for(self, rule: str, subject: str, *options: str) -> dict[str, Any]:
        """The rule's finding, as soon as it has this subject."""

        def found() -> dict[str, Any] | None:
            finding = self.finding(rule, *options)
            return finding if finding is not None and subject in finding["subjects"] else None

        finding = eventually(found, what=f"{rule} finds {subject}")
        assert finding is not None
        assert finding["sentence"].endswith(".")
        assert finding["evidence"], finding
        assert finding["mends"], finding
        return finding

    def mend(self, finding: dict[str, Any]) -> None:
        """Run the finding's commands."""
        for each in finding["mends"]:
            if "command" in each:
                words = shlex.split(each["command"])
                assert words[0] == "barnabas"
                code = main(words[1:])
                # The plan is written by the doctor, which finds what it finds.
                assert code == (1 if words[1] == "doctor" else 0), (words, self.capsys.readouterr())

    def wait_until_mended(self, rule: str, subject: str, *options: str) -> None:
        """Until the rule no longer finds it."""

        def is_mended() -> bool:
            finding = self.finding(rule, *options)
            return finding is None or subject not in finding["subjects"]

        eventually(is_mended, what=f"{rule} no longer finds {subject}")
