#!/usr/bin/env python3
"""Write what follows from the code: reference pages, and pictures and tables in other pages.

The pages are docs/reference/apis.md, configuration.md, commands.md and metrics.md, and
pictures/flow.svg. A picture stands between two comments, ``<!-- figure: NAME -->`` and
``<!-- end of figure -->``. A test fails while they differ from what this writes, so the pages agree
with the code.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from api_headers import read_header
from flow_picture import flow_picture
from glossary import edges, tables
from speed_table import speed_table

from barnabas.base.settings import Setting
from barnabas.broker.apis import MODULES, load_handlers
from barnabas.broker.apis.api_versions import advertised
from barnabas.broker.configuration.definitions import DEFINITIONS
from barnabas.broker.configuration.refused import ROWS_REFUSED
from barnabas.broker.configuration.without_effect import WITHOUT_EFFECT
from barnabas.broker.replication.partition_fetch_state import FETCH_TRANSITIONS, FetchState
from barnabas.cli.commands import COMMANDS
from barnabas.coordination.server.settings import ZOO_CFG_DEFINITIONS as COORDINATION
from barnabas.coordination.server.settings import ZOO_CFG_REFUSED as COORDINATION_REFUSED
from barnabas.coordination.server.settings import ZOO_CFG_WITHOUT_EFFECT as COORDINATION_WITHOUT_EFFECT
from barnabas.coordination.server.settings import RefusedSetting
from barnabas.doctor.report import list_of_rules
from barnabas.doctor.rules import ALL_RULES
from barnabas.log.settings import TOPIC_REFUSED, TOPIC_SETTINGS, TOPIC_WITHOUT_EFFECT
from barnabas.metrics.alerts import ALERTS
from barnabas.metrics.catalog import SERVERS
from barnabas.registry.settings import REGISTRY_REFUSED, REGISTRY_SETTINGS
from barnabas.rest.core.settings import REST_REFUSED, REST_SETTINGS
from barnabas.wire.kafka.api import ApiKey

EXIT_STATUSES = (
    ("0", "all that was asked is done; a server or a consumer that was stopped has ended in good order", "all"),
    ("1", "it failed: one line on standard error says what, where and what to do", "all"),
    (
        "1",
        "a group, partition or record was refused; the others are done",
        "`consumer-groups`, `leader-election`, producers",
    ),
    ("1", "replicas differ", "`replica-verification`"),
    ("1", "rows of outputs differ from what the topics give", "`pipeline verify`"),
    ("1", "no server answers, one does not serve, or there are two leaders", "`zookeeper-status`"),
    ("1", "no cluster runs", "`status`"),
    ("1", "something is wrong with the cluster or will be", "`doctor`"),
    ("1", "a check or a search found a problem, or no row", "`pipeline check`, `test`, `search`"),
    ("2", "it cannot be typed like this", "all"),
    ("2", "a file cannot be used", "`zookeeper-server-start`, as ZooKeeper's"),
    ("2", "nothing was done: it was not confirmed", "`pipeline reset`, `rewind`"),
    (
        "3",
        "the answer was printed and is incomplete: lines on standard error name what did not answer by the deadline",
        "`overview`, `lag`, `get-offsets`, `topics --describe`, `consumer-groups --list` and `--describe`, `groups list`, "
        "`configs --describe`, `log-dirs`, `broker-api-versions`, `reassign-partitions --verify`, `delete-records`, "
        "`replica-verification`, `tail --no-follow`, `top` that prints, `cat -C -e`, `zookeeper-status`",
    ),
    (
        "3",
        "the cluster cannot be read, or nothing is wrong in the part that could be read: the answer names the rest",
        "`doctor`",
    ),
    ("3", "nothing differs, and something could not be verified: the answer names it", "`pipeline verify`"),
    ("130", "Ctrl-C", "all"),
    ("141", "the reader of its output went away", "all"),
    ("143", "SIGTERM", "those that do not end in good order then, such as `console-consumer`"),
)
"""What each exit status of a command means."""

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference"


def apis() -> str:
    """The table of what ApiVersions advertises, and what is not served."""
    handlers = load_handlers()
    lines = [
        "# APIs and their versions",
        "",
        "What a broker advertises in ApiVersions, from the same table that dispatches requests. Produce is advertised "
        f"from version 0, although it is served from {handlers[ApiKey.PRODUCE].min_version} on, as in Kafka 4: librdkafka "
        "takes the lowest version as a sign of the codecs that a broker knows. A request of an older version closes the "
        "connection.",
        "",
        "| key | API | versions |",
        "|---|---|---|",
    ]
    for entry in advertised(handlers.values()):
        note = " (between brokers)" if handlers[entry.api_key].inter_broker else ""
        name = ApiKey(entry.api_key).name
        lines.append(f"| {entry.api_key} | {name}{note} | {entry.min_version} to {entry.max_version} |")
    absent = ", ".join(key.name for key in ApiKey if int(key) not in handlers)
    lines += ["", f"Known and not served: {absent}.", ""]
    for header in sorted(map(read_header, MODULES), key=lambda header: header.key):
        lines += [f"## {header.name}", "", *header.description.splitlines(), ""]
        lines += [f"- Version {version}: {text}" for version, text in header.additions.items()]
        lines += [""] if header.additions else []
        lines += [f"Errors: {header.errors}", ""]
    return "\n".join(lines)


def _settings_table(settings: Iterable[Setting]) -> list[str]:
    lines = ["| name | type | default | |", "|---|---|---|---|"]
    ordered = sorted(settings, key=lambda setting: setting.name)
    lines += [f"| `{item.name}` | {item.kind.name.lower()} | {_default(item)} | {item.doc} |" for item in ordered]
    return lines


def _reasons_table(reasons: Mapping[str, str]) -> list[str]:
    """Topic settings, each with the reason why it does not do what it says."""
    lines = ["| name | type | default | | why |", "|---|---|---|---|---|"]
    settings = [TOPIC_SETTINGS[name] for name in sorted(reasons)]
    lines += [
        f"| `{item.name}` | {item.kind.name.lower()} | {_default(item)} | {item.doc} | {reasons[item.name]} |"
        for item in settings
    ]
    return lines


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "required" if setting.required else ""
    return f"`{setting.default}`" if setting.default else "empty"


def configuration() -> str:
    """All properties, under the names of Kafka, ZooKeeper, and Confluent's servers."""
    refused = {row.setting.name: row.setting for row in ROWS_REFUSED}
    lines = [
        "# Configuration",
        "",
        "Names, types and defaults are Kafka's and ZooKeeper's, except that connections are limited: see "
        "`max.connections` and `max.connections.per.ip`. A name that is not listed here is kept and has no effect; the "
        "broker reports it at its start.",
        "",
        "## Brokers (server.properties, `--override`, `configs --entity-type brokers`)",
        "",
        *_settings_table(setting for setting in DEFINITIONS if setting.name not in {**WITHOUT_EFFECT, **refused}),
        "",
        "### Without effect",
        "",
        "These are accepted, and reported at the start of the broker when they are set.",
        "",
        *_inert_tables(),
        "### Refused",
        "",
        "These ask for protection that this version does not have. A broker with another value than the default does "
        "not start, and a dynamic change to one is answered with an error. The same holds for every other name that "
        "begins with `ssl.`, `sasl.`, `zookeeper.ssl.`, `zookeeper.sasl.`, `delegation.token.`, `password.encoder.`, "
        "`listener.name.`, `listeners.name`, `authorizer.`, `super.user`, `allow.everyone`, `principal.` or `security.`, "
        "also with `_` or `-` for a dot, for a name that differs from a protecting one by a letter, and for a setting of "
        "TLS or SASL that no listener can use.",
        "",
        *_settings_table(refused.values()),
        "",
        "## Topics (`topics --config`, `configs --entity-type topics`)",
        "",
        *_settings_table(
            setting for setting in TOPIC_SETTINGS if setting.name not in {**TOPIC_WITHOUT_EFFECT, **TOPIC_REFUSED}
        ),
        "",
        "### Without effect",
        "",
        "These are accepted and shown, and change nothing.",
        "",
        *_reasons_table(TOPIC_WITHOUT_EFFECT),
        "",
        "### Refused",
        "",
        "Any value but the default is answered with an error.",
        "",
        *_reasons_table(TOPIC_REFUSED),
        "",
        "## Coordination server (zoo.cfg)",
        "",
        *_settings_table(COORDINATION),
        "",
        "A name may begin with `zookeeper.`, as ZooKeeper's Java system properties do.",
        "",
        "### Without effect",
        "",
        "These are accepted, and reported at the start of the server when they are set.",
        "",
        "| name | why |",
        "|---|---|",
        *(f"| `{name}` | {reason} |" for name, reason in sorted(COORDINATION_WITHOUT_EFFECT.items())),
        "",
        "### Refused",
        "",
        "These ask for protection that this version does not have. The server does not start with another value than "
        "the ones named, upper or lower case.",
        "",
        "| name | why | values that are accepted |",
        "|---|---|---|",
        *(f"| `{row.name}` | {row.missing} | {_accepted(row)} |" for row in COORDINATION_REFUSED),
        "",
        "## Schema registry (schema-registry.properties)",
        "",
        "`kafkastore.security.protocol`, `kafkastore.sasl.*` and `kafkastore.ssl.*` are [properties of clients](client.md): how "
        "the registry connects to the brokers.",
        "",
        *_settings_table(REGISTRY_SETTINGS),
        "",
        "### Refused",
        "",
        "The registry does not start with one of these, nor with another unknown name that begins as one that protects does.",
        "",
        *_refused_names(REGISTRY_REFUSED),
        "",
        "## REST proxy (kafka-rest.properties)",
        "",
        "`client.*`, `producer.*`, `consumer.*` and `admin.*` are [properties of clients](client.md), of all or of one kind; "
        "`schema.registry.*` are those of the registry's client.",
        "",
        *_settings_table(REST_SETTINGS),
        "",
        "### Refused",
        "",
        "The proxy does not start with one of these, nor with another unknown name that begins as one that protects does.",
        "",
        *_refused_names(REST_REFUSED),
        "",
    ]
    return "\n".join(lines)


def _accepted(row: RefusedSetting) -> str:
    return ", ".join(f"`{value}`" if value else "empty" for value in sorted(row.harmless))


def _refused_names(reasons: Mapping[str, str]) -> list[str]:
    return ["| name | why |", "|---|---|", *(f"| `{name}` | {reason} |" for name, reason in sorted(reasons.items()))]


def _inert_tables() -> list[str]:
    by_reason: dict[str, list[Setting]] = {}
    for name, reason in WITHOUT_EFFECT.items():
        by_reason.setdefault(reason, []).append(DEFINITIONS[name])
    lines = []
    for reason, settings in by_reason.items():
        lines += [f"{reason[0].upper()}{reason[1:]}:", "", *_settings_table(settings), ""]
    return lines


def commands() -> str:
    """Each command's own help."""
    lines = [
        "# Commands",
        "",
        "`barnabas help COMMAND` (or `barnabas COMMAND --help`) prints what stands here. Names and flags are those of Kafka's tools.",
        "",
        "## Exit statuses",
        "",
        "| status | when | which commands |",
        "|---|---|---|",
        *(f"| {code} | {when} | {which} |" for code, when, which in EXIT_STATUSES),
        "",
        "Some of Kafka's tools print an error and end with 0, and end with 1 where ours end with 2.",
        "",
        "## The deadline",
        "",
        "A command that reads a cluster answers within one deadline for all that it does: 5 seconds, or `--timeout S`. Where Kafka's",
        "tool has a `--timeout` with another meaning, `--connect-timeout S` sets the deadline, as it does in all others. All brokers are",
        "asked at the same time, so that one that is dead, frozen or slow costs the others nothing. What is known by then is printed.",
        "What is not is named on standard error in lines that begin with `Incomplete:`: a broker with its id, its address and for how",
        "long it was waited for, a partition without a leader with the brokers of which one must come back. It is `null` in JSON, `?` or `-`",
        "in tables, and never 0, and the exit status is 3. Where no broker answers at all it is 1. Where a command has",
        "more questions than one, brokers have two thirds of the time that is left for each but the last.",
        "",
        "`--watch` gives each round the whole deadline, and goes on. A change (a topic, a configuration, a deletion) keeps Kafka's longer",
        "times once it is sent, because only its answer says what became of it; the way to the controller, coordinator or leader ends by",
        "the deadline. Consumers, producers, `tail` and `cat` wait by nature: they need one broker by the deadline, and say on standard error",
        "what they wait for, such as `partition t-0 has no leader (its replicas: broker 1); waiting`.",
        "",
        "## Names on terminals, and brokers",
        "",
        "On a terminal, what is not printable in names, settings, records and messages is shown with escapes such as `\\x1b` and `\\n`,",
        "so that it neither controls the terminal nor forges a row. Bytes of records that are not UTF-8 are shown as `\\xff`, in `tail` also in files",
        "and pipes; a text that reads like that has two backslashes for one, so that different keys look different. JSON documents of records",
        "(`tail --output json`, `cat -J`) give such bytes as `key_base64`, `value_base64` and `headers_base64`, too. Files and pipes get other",
        "things as they are; for scripts, `--output json`",
        "separates names with newlines safely. Errors are red there, warnings yellow and the headers of tables bold, unless `NO_COLOR` is",
        "set or `TERM` is `dumb`.",
        "",
        "Brokers are named by `--bootstrap-server`, or for all commands by a context: `barnabas context add NAME --bootstrap-servers",
        "HOST:PORT`. No command assumes an address.",
        "",
    ]
    for name in COMMANDS:
        lines += [f"## {name}", "", "```text", _help(name), "```", ""]
    return "\n".join(lines)


def _help(command: str) -> str:
    environment = {"COLUMNS": "100", "PATH": "", "NO_COLOR": "1", "PYTHONPATH": str(DOCS.parent / "src")}
    run = [sys.executable, "-m", "barnabas", command, "--help"]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.rstrip()


def metrics() -> str:
    """Every metric of every server, and every alert rule."""
    lines = [
        "# Metrics",
        "",
        "What each server and client shows to Prometheus, in the path `/metrics` of its page. `barnabas metrics list` prints the same;",
        "how pages are opened and what the figures say is in [watch a cluster](../how-to/watch-a-cluster.md#metrics-for-prometheus).",
        "Names that do not begin with `barnabas_` are those that the Prometheus JMX exporter gives to Kafka's MBeans, or those of",
        "ZooKeeper and of the well-known exporters. A coordination server has all of ZooKeeper's metrics; those that dashboards and rules",
        "read are listed.",
        "",
    ]
    for server in SERVERS:
        lines += [f"## {server.name.capitalize()}", "", f"Opened by `{server.setting}`; its job is `{server.job}`.", ""]
        lines += ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
        lines += [
            f"| `{each}` | {each.kind} | {', '.join(map('`{}`'.format, each.labels)) or '-'} | {each.help_text.rstrip('.')} |"
            for each in server.metrics
        ]
        lines.append("")
    lines += ["## Alert rules", "", "`barnabas metrics rules DIR` writes them.", ""]
    lines += ["| rule | severity | fires after | when | look at |", "|---|---|---|---|---|"]
    lines += [
        f"| {each.name} | {each.severity} | {each.for_} | `{each.expression.replace('|', chr(92) + '|')}` | `{each.look}` |"
        for group in ALERTS
        for each in group.alerts
    ]
    return "\n".join([*lines, ""])


def fetch_states() -> str:
    """The states of a partition that is copied, from the table of transitions."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {FetchState.STARTING.value}"]
    lines += [
        f"    {before.value} --> {after.value}: {event.value}"
        for before, events in FETCH_TRANSITIONS.items()
        for event, after in events.items()
    ]
    return "\n".join([*lines, "```"])


def doctor_rules() -> str:
    """The rules of `barnabas doctor`, from their registrations."""
    lines = ["| rule | danger | it finds that |", "|---|---|---|"]
    lines += [
        f"| `{each['rule']}` | {each['danger'].replace('_', ' ')} | {each['finds']} |"
        for each in list_of_rules(ALL_RULES)
    ]
    return "\n".join(lines)


PAGES = {"apis.md": apis, "configuration.md": configuration, "commands.md": commands, "metrics.md": metrics}


FIGURES = {
    "fetch states": ("explanation/how-replication-works.md", fetch_states),
    "modules": ("contributing/glossary.md", tables),
    "edges": ("contributing/design.md", edges),
    "speed": ("../README.md", speed_table),
    "rules of the doctor": ("how-to/doctor.md", doctor_rules),
}


def with_figure(page: str, name: str, figure: str) -> str:
    """A page with a picture as it is now; raises ValueError where the page has no place for it."""
    begin, end = f"<!-- figure: {name} -->\n", "<!-- end of figure -->"
    before, after = page.split(begin, 1)
    return f"{before}{begin}{figure}\n{after[after.index(end) :]}"


def main() -> int:
    """Write the pages; with --check only say which are out of date, and return 1 for any."""
    texts = {REFERENCE / name: page() for name, page in PAGES.items()}
    texts[DOCS / "pictures" / "flow.svg"] = flow_picture()
    for name, (page, figure) in FIGURES.items():
        path = DOCS / page
        texts[path] = with_figure(texts.get(path) or path.read_text(), name, figure())
    stale = []
    for path, text in texts.items():
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if "--check" in sys.argv and stale:
        print(f"out of date: {', '.join(stale)}; run docs/generate.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
