"""How Spark is kept from other users of this machine and of the network: its ports, and what its
pages and logs show. Needs no Spark.

Spark's driver, executors and block managers listen at ports that every process of the machine
reaches, and take work from any that connects. With ``spark.authenticate`` they share a secret:
Spark makes one for each session on this machine, on YARN and on Kubernetes; the processes of a
standalone cluster get theirs from its administrator (docs/how-to/pipeline-cluster.md).

Spark shows its settings on its pages and in its event log, without those whose names or values
match ``spark.redaction.regex``. The options of sources are in the plans of queries.
"""

from collections.abc import Mapping

from barnabas.base.redaction import HIDDEN_NAME
from barnabas.pipelines.flow_file.masters import is_local

__all__ = ["OPEN_CALLBACKS", "UNPROTECTED", "lacks_secret", "protection_settings"]

_OWN = "spark.authenticate.secret"
_LOGIN_IN_ADDRESS = "://[^/?#\\s]*@"
_REDACTED = f"(?i){HIDDEN_NAME}|{_LOGIN_IN_ADDRESS}"
_REDACTED_OPTIONS = f"(?i)url|^place$|^query$|^source$|^registry$|{HIDDEN_NAME}"
"""Options whose values Spark hides; those of `barnabas.pipelines.frames.lookup`, too, whose option
``source`` has all properties of a client."""


UNPROTECTED = (
    "Spark's master, workers and driver trust whatever connects to their ports: set spark.authenticate.secret there and in "
    "resources.spark (docs/how-to/pipeline-cluster.md)"
)
"""What is wrong with a flow that `lacks_secret`."""

OPEN_CALLBACKS = (
    "this process takes calls from every process of this machine while Spark runs, for its py4j is not the one that is known here: "
    "install PySpark with the py4j that it names (pip install --force-reinstall pyspark)"
)
"""What is wrong with a session whose callbacks have no secret
(`barnabas.pipelines.spark.callback_auth`)."""


def protection_settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings that protect a session of ``master``.

    Those ``given`` by the user are laid over them."""
    settings = {"spark.redaction.regex": _REDACTED, "spark.sql.redaction.options.regex": _REDACTED_OPTIONS}
    if is_local(master):
        return {**settings, "spark.authenticate": "true"}
    if lacks_secret(master, given):
        return settings
    return {
        **settings,
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }


def lacks_secret(master: str, given: Mapping[str, str]) -> bool:
    """Whether it is a standalone cluster, whose processes need a secret from
    outside, and there is none."""
    return master.startswith("spark://") and not any(name.startswith(_OWN) for name in given)
