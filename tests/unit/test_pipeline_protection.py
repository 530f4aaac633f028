"""Spark's ports take work from this flow's own processes only, and its pages and
logs show no secret."""

import re

import pytest

from barnabas.pipelines.spark.protection import lacks_secret, protection_settings

SECRET = {"spark.authenticate.secret": "x"}


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "yarn", "k8s://https://host:443"])
def test_processes_that_spark_gives_a_secret_use_it(master: str) -> None:
    """On this machine, on YARN and on Kubernetes."""
    assert protection_settings(master, {})["spark.authenticate"] == "true"
    assert not lacks_secret(master, {})


def test_a_standalone_cluster_needs_a_secret_of_its_administrator() -> None:
    """Without it a flow that sets spark.authenticate cannot talk to the cluster, so it
    runs as before and says so."""
    assert lacks_secret("spark://host:7077", {})
    assert "spark.authenticate" not in protection_settings("spark://host:7077", {})
    protected = protection_settings("spark://host:7077", SECRET)
    assert not lacks_secret("spark://host:7077", SECRET)
    assert (protected["spark.authenticate"], protected["spark.network.crypto.enabled"]) == ("true", "true")


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:443"])
def test_what_goes_over_a_network_is_encrypted(master: str) -> None:
    """Between driver and executors, and in the files that executors keep for a while."""
    settings = protection_settings(master, {})
    assert settings["spark.network.crypto.enabled"] == settings["spark.io.encryption.enabled"] == "true"


@pytest.mark.parametrize(
    "name",
    [
        *("spark.authenticate.secret", "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key"),
        *(
            "spark.hadoop.fs.azure.account.key.store.example",
            "spark.ssl.keyPassword",
            "spark.hadoop.fs.s3a.session.token",
        ),
        *("spark.kafka.sasl.jaas.config", "spark.executorEnv.API_KEY", "https://ann:secret@repository.example/jars"),
    ],
)
def test_spark_redacts_settings_whose_names_or_values_are_secret(name: str) -> None:
    """Its regular expressions are Java's, of which these use what Python has, too."""
    assert re.search(protection_settings("local", {})["spark.redaction.regex"], name)


@pytest.mark.parametrize("name", ["kafka.sasl.password", "place", "source", "url", "kafka.ssl.key.pem"])
def test_spark_redacts_options_of_sources_that_may_hold_a_password(name: str) -> None:
    """In the plans of queries: those of tables to look up have a whole client's
    properties in one option."""
    assert re.search(protection_settings("local", {})["spark.sql.redaction.options.regex"], name)
