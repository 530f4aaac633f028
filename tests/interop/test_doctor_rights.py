"""`barnabas doctor` without rights names what it could not see, and the right that is missing."""

from pathlib import Path

import pytest

from barnabas.cli.main import main
from barnabas.cli.output.exit_codes import INCOMPLETE
from barnabas.testing import Cluster
from support.doctor_runs import Doctor
from support.needs import needs

pytestmark = pytest.mark.interop


@needs("openssl")
def test_a_user_without_rights_is_told_which_are_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing is wrong in what it may see: that is not all, and the status says so."""
    users = {"admin": "admin-secret", "ann": "ann-secret"}
    with Cluster(
        brokers=3,
        security="SASL_PLAINTEXT",
        users=users,
        acls=["--allow-principal User:ann --operation Describe --topic seen"],
    ) as running:
        running.create_topic("seen", 1, 3)
        running.create_topic("hidden", 1, 1)
        config = tmp_path / "ann.properties"
        config.write_text(
            "".join(f"{name}={value}\n" for name, value in running.client_properties("ann", java=True).items())
        )
        doctor = Doctor(running.bootstrap_servers, capsys, tmp_path)
        code, report = doctor.diagnose("--command-config", str(config))
        reasons = {each["rule"]: each["reason"] for each in report["rules"]}
        assert (code, report["findings"], report["complete"]) == (INCOMPLETE, [], False)
        assert reasons["log-dir-offline"] == "the right Describe on the cluster is missing"
        assert reasons["cleaner-off"] == "the right DescribeConfigs on the cluster is missing"
        (settings,) = (each for each in report["rules"] if each["rule"] == "min-isr-equals-factor")
        assert {
            "subject": "topic seen",
            "why": "no right",
            "reason": "the right DescribeConfigs on the topic is missing",
        } in settings["not_seen"]
        assert any("topics that this user may not describe" in each["reason"] for each in settings["not_seen"])
        capsys.readouterr()
        assert (
            main(["doctor", "--bootstrap-server", running.bootstrap_servers, "--command-config", str(config)])
            == INCOMPLETE
        )
        shown = capsys.readouterr().out
        assert "the right Describe on the cluster is missing" in " ".join(shown.split())
        assert max(map(len, shown.splitlines())) <= 80
