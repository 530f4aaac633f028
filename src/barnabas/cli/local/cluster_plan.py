"""What ``barnabas up`` starts on a data dir: what the dir holds, as options change it."""

import argparse
from pathlib import Path
from typing import NamedTuple

from barnabas.base.settings import read_properties
from barnabas.cli.local.broker_plan import BrokersPlan, plan_brokers
from barnabas.cli.local.coordination_plan import CoordinationPlan, plan_coordination
from barnabas.cli.local.held_cluster import read_held, record_location
from barnabas.cli.local.options import overrides_of, users_of
from barnabas.cli.local.security_plan import SecurityPlan, plan_security
from barnabas.cli.local.service_plans import ServicePlan, plan_services
from barnabas.cli.local.supervisor import ServerPlan
from barnabas.cli.machine.server_names import SERVICES, authorizer_log_of
from barnabas.cli.output.colours import print_warning

__all__ = ["ClusterPlan", "plan_cluster"]


class ClusterPlan(NamedTuple):
    """What is started."""

    coordination: CoordinationPlan
    brokers: BrokersPlan
    security_plan: SecurityPlan
    services: list[ServicePlan]

    def write(self, directory: Path) -> list[ServerPlan]:
        """Write the files that have changed."""
        record_location(directory)
        plans = [ServerPlan(name, "zookeeper-server-start", path) for name, path in self.coordination.write()]
        for number, file in enumerate(self.brokers.files):
            path, name = file.write(), str(number)
            texts = read_properties(path.read_bytes().decode("latin-1"))  # also what was edited by hand
            options: tuple[str, ...] = ()
            if texts.get("authorizer.class.name", "").strip():
                options = ("--authorizer-log", str(authorizer_log_of(directory / "logs", name)))
            plans.append(ServerPlan(name, "server-start", path, options))
        return plans + [
            ServerPlan(each.name, SERVICES[each.name].command, each.write(self.security_plan)) for each in self.services
        ]


def plan_cluster(given: argparse.Namespace, directory: Path) -> ClusterPlan:
    """Decide what to start; writes nothing.

    Raises `BarnabasError` for options that do not fit what the data dir has."""
    held = read_held(directory, print_warning)
    coordination = plan_coordination(given, held, directory)
    security_plan = plan_security(given, users_of(given), held, directory)
    brokers = plan_brokers(given, held, directory, coordination, security_plan, overrides_of(given))
    services = plan_services(given, held, directory, brokers, security_plan)
    return ClusterPlan(coordination, brokers, security_plan, services)
