"""The structure of the code, as failing tests: layers, circles, purity by capability, and sizes."""

import ast
import importlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PACKAGE = SOURCES / "barnabas"

# Inside these packages a file's name says whether it may do I/O.
SUBSYSTEM_PACKAGES = ("broker", "coordination", "log")
# Each folder of these is a room, whose docstring names its counterpart.
PACKAGES_OF_ROOMS = (*SUBSYSTEM_PACKAGES, "cli", "client", "pipelines")
EDGE_NAMES = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["barnabas"]["structure"]["edge_names"])
# These are edges: programs, sockets, and the seams to time, files, networks, threads and chance.
EDGE_PATHS = (
    "__main__.py",
    "base/clock.py",
    "base/files.py",
    "base/installation.py",
    "base/lazy_names.py",
    "base/memory.py",
    "base/network.py",
    "base/private_files.py",
    "base/processes.py",
    "base/randomness.py",
    "base/task_futures.py",
    "base/tasks.py",
    "base/threads.py",
    "base/user_folders.py",
    "cli/",
    "client/admin/groups.py",
    "client/admin/scram_users.py",
    "client/admin/transactions.py",
    "client/aio/",
    "client/arguments.py",
    "client/cluster/",
    "client/codecs.py",
    "client/consumer/consumer.py",
    "client/consumer/rights.py",
    "client/librdkafka/",
    "client/network/",
    "client/producer/",
    "client/properties/config_providers.py",
    "client/properties/names.py",
    "client/properties/stores.py",
    "client/registry/json_serializers.py",
    "client/registry/json_validators.py",
    "client/registry/protobuf_files.py",
    "client/registry/registry.py",
    "client/registry/requests.py",
    "client/registry/serializers.py",
    "client/registry/web.py",
    "client/security/",
    "doctor/reading/",
    "lag/history.py",
    "lag/service.py",
    "mirror/",
    "net/",
    "pipelines/",
    "registry/http/deliberation.py",
    "registry/http/forwarding.py",
    "registry/http/service.py",
    "registry/server.py",
    "registry/storage/cluster_acls.py",
    "registry/storage/elector.py",
    "registry/storage/reader.py",
    "registry/storage/service.py",
    "registry/storage/writer.py",
    "rest/backends.py",
    "rest/clients/",
    "rest/http/",
    "rest/server.py",
    "testing/",
    "top/reader.py",
    "top/screen.py",
)
# Commands are programs, and Spark is everywhere in pipelines: both are edges, but for
# these modules, which decide.
DECIDING_IN_EDGES = {
    "cli/configs/changes.py",
    "cli/connection/suggestions.py",
    "cli/console/line_reader.py",
    "cli/log_files/decoders.py",
    "cli/output/readable.py",
    "cli/replicas/reassignment_plans.py",
    "cli/replicas/replica_comparison.py",
    "cli/zookeeper/quota_commands.py",
    "pipelines/checkpoints/rereading.py",
    "pipelines/cluster/bounds.py",
    "pipelines/cluster/log_ends.py",
    "pipelines/cluster/offsets.py",
    "pipelines/cluster/options.py",
    "pipelines/connector/flow_options.py",
    "pipelines/connector/range_progress.py",
    "pipelines/dashboard/page.py",
    "pipelines/flow_file/function_fields.py",
    "pipelines/flow_file/toml_lines.py",
    "pipelines/formats/declared.py",
    "pipelines/outputs/declared.py",
    "pipelines/outputs/epochs.py",
    "pipelines/outputs/index_kinds.py",
    "pipelines/outputs/sinks.py",
    "pipelines/progress/metric_names.py",
    "pipelines/progress/summary_text.py",
    "pipelines/running/expression_places.py",
    "pipelines/running/restarts.py",
    "pipelines/spark/java_files.py",
    "pipelines/spark/protection.py",
    "pipelines/specification/charts.py",
    "pipelines/specification/limits.py",
    "pipelines/specification/model.py",
    "pipelines/specification/row_steps.py",
    "pipelines/specification/templates.py",
}
# A subsystem has one edge. The controller has two: its event loop, and the queues of requests to
# each broker, which Kafka calls ControllerChannelManager and which run beside the event loop. The
# cluster has two: the connections to brokers, and the interpreter of steps, which uses them and the
# coordination client. That client has its connection, and the same client for callers without an
# event loop. The coordination server has the ports for clients besides.
EDGES_OF_FOLDER = {
    "broker/cluster": 2,
    "broker/controller": 2,
    "coordination/client": 2,
    "coordination/server": 2,
    "coordination/zab": 2,
}

# Deciding code that still has a hand on the world. The list shrinks only: an entry that
# is no longer needed fails.
IMPURE_SO_FAR: dict[str, set[str]] = {}
# The assemblies start nothing, and give the edges what these work with. Handlers and messages are
# found by the names of their modules; the coders of messages are written as source and compiled. A
# claim decides between an edge's thread and the event loop. The path of a request reads an injected
# clock, because one event (an append, a frame) continues many requests there. A member of an
# ensemble gives its roles the time of its injected clock, which they pass to what decides. The map
# of a compaction hashes keys under a secret of the process, on which no decision depends. A cleaner
# in a process of its own has its files there.
PASSES_ON = {
    "base/record_times.py": {"import datetime"},  # to convert times that it is given
    "broker/apis/__init__.py": {"import importlib"},
    "broker/apis/produce.py": {"Clock"},
    "broker/apis/services.py": {"Clock"},
    "broker/assembly.py": {"CoordinationClient", "Clock", "Coroutine", "InThread", "in_thread", "spawn"},
    "broker/replication/delayed_fetch.py": {"Clock"},
    "broker/replication/produce_append.py": {"Clock"},
    "broker/requests/dispatch.py": {"Clock"},
    # Type checkers import it, and no program.
    "client/type_variables.py": {"import typing_extensions"},
    "coordination/server/assembly.py": {"Clock"},
    "log/compaction/offset_map.py": {"new_random"},
    "log/compaction/worker.py": {"OsFiles", "SystemClock"},
    "log/dirs/dir_set.py": {"Claim"},
    "log/leader_epochs.py": {"Claim"},
    "log/record_checks.py": {"AtMost"},
    # The libraries of JSON Schema resolve references in what they are given; nothing is fetched.
    "registry/formats/json_schema/documents.py": {
        *("import jsonschema_specifications", "import referencing.exceptions"),
        *("import referencing.jsonschema", "import urllib.parse"),
    },
    "registry/formats/json_schema/value_rules.py": {"import decimal"},
    # Protobuf's library makes messages of bytes; its modules hold the files that Google publishes.
    "registry/formats/protobuf/from_descriptors.py": {
        "import google.protobuf",
        "import google.protobuf.descriptor",
        "import google.protobuf.message",
    },
    "registry/formats/protobuf/known_files.py": {
        "import google.protobuf",
        "import importlib",
        "import importlib.util",
    },
    "registry/formats/protobuf/schema.py": {"import google.protobuf", "import google.protobuf.message"},
    "registry/formats/protobuf/to_descriptors.py": {"import google.protobuf"},
    "rest/core/schema_values.py": {  # bytes to values
        *("import fastavro", "import google.protobuf", "import google.protobuf.message", "import io"),
        *("import jsonschema", "import referencing", "import referencing.jsonschema"),
    },
    "security/key_stores.py": {  # bytes to bytes
        "import cryptography.hazmat.primitives.serialization",
        "import cryptography.hazmat.primitives.serialization.pkcs12",
    },
    "wire/jute/codec.py": {"compile()", "exec()"},
    "wire/kafka/api.py": {"import importlib", "getattr()"},
    "wire/kafka/reader_source.py": {"compile()", "exec()"},
    "wire/kafka/schema.py": {"compile()", "exec()", "getattr()"},
    "wire/kafka/writer_source.py": {"compile()", "exec()"},
}

# What deciding code may import besides this project: modules without time, chance,
# files, sockets and threads.
PURE_MODULES = {
    "__future__",
    "array",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "contextlib",
    "cramjam",
    "crc32c",
    "dataclasses",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "ipaddress",
    "itertools",
    "javaproperties",
    "json",
    "logging",
    "math",
    "numpy",
    "operator",
    "posixpath",
    "re",
    "string",
    "shlex",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "zlib",
}
# Of these modules it may import some names only.
PURE_NAMES = {"http": {"HTTPStatus"}, "urllib.parse": {"parse_qsl", "quote", "unquote", "urlsplit"}, "uuid": {"UUID"}}
# Functions and names of the language that reach files, the terminal, or other code.
IMPURE_FUNCTIONS = {
    *("__builtins__", "__import__", "__loader__", "__spec__", "breakpoint", "compile", "eval", "exec", "globals"),
    *("input", "locals", "open", "print", "vars"),
}
# Attributes of objects that lead from them to files, coroutines and other code.
IMPURE_ATTRIBUTES = {
    *("__await__", "__builtins__", "__globals__", "__import__", "__loader__", "__subclasses__"),
    *("fromfile", "tofile"),
}
# Members of pure modules that are not.
IMPURE_MEMBERS = {
    "cramjam": {"File"},
    "hashlib": {"file_digest"},
    "logging": {"FileHandler", "StreamHandler", "basicConfig", "config", "handlers", "lastResort"},
    "numpy": {
        *("ctypeslib", "fromfile", "genfromtxt", "lib", "load", "loadtxt", "memmap", "random", "save", "savetxt"),
        *("savez", "savez_compressed", "testing"),
    },
    "types": {"coroutine"},
}
# The real world as this project has it: deciding code gets what stands for it in its constructor.
REAL_WORLD = {"OsFiles", "SocketNetwork", "SystemClock", "new_random"}
COORDINATION_CLIENTS = {"CoordinationClient", "BlockingClient"}
# What only an edge may hold: it does something later or elsewhere, or knows the time.
CAPABILITIES = (
    {"spawn", "in_thread", "InThread", "run_in_executor", "AtMost", "Claim", "Clock"}
    | {"AsyncGenerator", "AsyncIterable", "AsyncIterator", "Awaitable", "Coroutine", "Future"}
    | COORDINATION_CLIENTS
    | REAL_WORLD
)

MAX_MODULE_LINES = 700
MAX_METHODS = 32
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 10
# These are to become smaller. The list shrinks only.
OVERSIZED_SO_FAR: dict[str, set[str]] = {
    # One short method for each operation of Kafka's Admin; the work is done in the
    # modules that it calls.
    "client/admin/admin.py": {"Admin"},
}

# One name, one meaning. These names stand for the same thing in each of their modules, or
# are another project's own.
SHARED_NAMES = {
    "API": "each module of broker/apis describes its API under this name",
    "Parts": "a module of broker/apis declares under this name what its handler uses",
    "handle": "each module of broker/apis handles its API in this function",
    "fail": "a module of broker/apis words its API's error answer in this function",
    "main": "each command's entry",
    "logger": "each module's logger",
    "ErrorCode": "Kafka's protocol, ZooKeeper's and the registry's API have one of each",
    "OPERATIONS": "the module of an operation registers its op codes",
    "TRANSACTIONS": "the module of an operation registers its transactions",
    "decide": "the module of an operation decides what a request changes in this function",
    "replay": "the module of an operation makes the change of a transaction in this function",
    "apply": "the module of an operation changes the tree in this function",
    "read_request": "the module of an operation reads its request's bytes in this function",
    "read_transaction": "the module of an operation reads its transaction's bytes in this function",
    "read_message": "a module of broker/apis with readers of bytes reads the decoded message in this function",
    "response_to": "a module of broker/apis with readers of bytes words the response in this function",
}
PROTOCOLS = "Kafka's protocol and ZooKeeper's have one of each"
CLIENT_AND_BROKER = "the client's question and the broker's answer to it have the operation's name"
SHARED_BY_TWO = {
    "Answer": ("broker/membership/controlled_shutdown.py", "registry/core/decisions.py", "to a broker, and over HTTP"),
    "Leader": ("broker/replication/partition.py", "coordination/zab/leader.py", PROTOCOLS),
    "Reader": ("wire/jute/codec.py", "wire/kafka/reader_source.py", PROTOCOLS),
    "RequestHeader": ("wire/jute/records.py", "wire/kafka/frames.py", PROTOCOLS),
    "Writer": ("wire/jute/codec.py", "wire/kafka/writer_source.py", PROTOCOLS),
    "decode": ("wire/jute/codec.py", "wire/kafka/codec.py", PROTOCOLS),
    "encode": ("wire/jute/codec.py", "wire/kafka/codec.py", PROTOCOLS),
    "encode_request": ("wire/jute/frames.py", "wire/kafka/frames.py", PROTOCOLS),
    "reader": ("wire/jute/codec.py", "wire/kafka/codec.py", PROTOCOLS),
    "writer": ("wire/jute/codec.py", "wire/kafka/codec.py", PROTOCOLS),
    "ResourceType": (
        "client/admin/configurations.py",
        "security/acls.py",
        "what has configurations, and what access control lists protect",
    ),
    "TransactionState": (
        "broker/transactions/states.py",
        "testing/virtual/transactions.py",
        "the coordinator's and the producer's view of a transaction",
    ),
    "Finding": (
        "doctor/finding.py",
        "pipelines/checks/trial.py",
        "what is wrong with a cluster, and with a flow",
    ),
    "Record": ("client/records.py", "wire/kafka/records/records.py", "what a consumer gets, and what a batch holds"),
    "SchemaReference": (
        "client/registry/references.py",
        "registry/formats/schema.py",
        "one thing, on the client's side and on the registry's",
    ),
    "delete_records": ("broker/replication/delayed_delete_records.py", "client/admin/offsets.py", CLIENT_AND_BROKER),
    "describe_group": ("broker/groups/queries.py", "client/admin/groups.py", CLIENT_AND_BROKER),
    "describe_log_dirs": ("broker/replication/log_dir_descriptions.py", "client/admin/log_dirs.py", CLIENT_AND_BROKER),
    "describe_transaction": ("broker/transactions/queries.py", "client/admin/transactions.py", CLIENT_AND_BROKER),
    "list_transactions": ("broker/transactions/queries.py", "client/admin/transactions.py", CLIENT_AND_BROKER),
    "list_groups": ("broker/groups/queries.py", "client/admin/groups.py", CLIENT_AND_BROKER),
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


MODULES = sorted(PACKAGE.rglob("*.py"))


def is_edge(path: Path) -> bool:
    name = name_of(path)
    if name == "coordination/client/__init__.py":
        return True  # it names the client for others
    if name.split("/")[0] in SUBSYSTEM_PACKAGES:
        return path.name in EDGE_NAMES
    return name.startswith(EDGE_PATHS) and name not in DECIDING_IN_EDGES


def _is_pure(module_name: str) -> bool:
    first, *members = module_name.split(".")
    return first in PURE_MODULES | {"barnabas"} and not set(members) & IMPURE_MEMBERS.get(first, set())


def _is_impure_member(module_name: str, member: str) -> bool:
    """Whether a pure module leads to what is not: its own such member, or another
    module that it imports."""
    first = module_name.split(".")[0]
    if first == "barnabas":
        return False
    found = getattr(importlib.import_module(first), member, None)
    if isinstance(found, ModuleType) and sys.modules.get(found.__name__) is found and not _is_pure(found.__name__):
        return True
    return member in IMPURE_MEMBERS.get(first, ())


def _module_aliases(module: ast.Module) -> dict[str, str]:
    """The names under which a module has imported pure modules."""
    imports = [alias for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names]
    names = {alias.asname or alias.name.split(".")[0]: alias.name for alias in imports}
    return {name: module_name for name, module_name in names.items() if _is_pure(module_name)}


def _impure_imports(node: ast.Import | ast.ImportFrom) -> set[str]:
    """What an import gives that only an edge may have."""
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.Import):
        # A module of this project is not imported whole, because its members could be
        # reached by any name then.
        return {f"import {name}" for name in names if not _is_pure(name) or name.split(".")[0] == "barnabas"}
    source = node.module or ""
    if node.level:
        return {"relative import"}
    if not _is_pure(source) and not names <= PURE_NAMES.get(source, set()):
        return {f"import {source}"}
    found = names & CAPABILITIES | names & {"*"}
    if _is_pure(source):
        found |= {f"{source}.{name}" for name in names if _is_impure_member(source, name)}
    return found


def world_uses(module: ast.Module) -> set[str]:
    """What a module does that only an edge may do."""
    found = set()
    modules = _module_aliases(module)
    for node in ast.walk(module):
        match node:
            case ast.Import() | ast.ImportFrom():
                found |= _impure_imports(node)
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                found.add("async")
            case ast.Attribute(_, member) if member in IMPURE_ATTRIBUTES:
                found.add(member)
            case ast.Attribute(ast.Name(alias), member) if alias in modules and _is_impure_member(
                modules[alias], member
            ):
                found.add(f"{modules[alias]}.{member}")
            case ast.Name(id) | ast.arg(id) | ast.Attribute(_, id) if id.lstrip("_") in CAPABILITIES:
                found.add(id.lstrip("_"))
            case ast.Name(id, ast.Load()) if id in IMPURE_FUNCTIONS:
                found.add(f"{id}()")
            case ast.Call(ast.Name("getattr") | ast.Name("attrgetter") | ast.Attribute(_, "attrgetter"), arguments):
                found |= _impure_getattr(arguments[-1] if len(arguments) < 2 else arguments[1])
    return found


def _impure_getattr(name: ast.expr) -> set[str]:
    if not isinstance(name, ast.Constant):
        return {"getattr()"}
    forbidden = CAPABILITIES | IMPURE_ATTRIBUTES | {each for names in IMPURE_MEMBERS.values() for each in names}
    return {str(name.value)} & forbidden


@pytest.mark.parametrize("path", [path for path in MODULES if not is_edge(path)], ids=name_of)
def test_deciding_code_has_no_hand_on_the_world(path: Path) -> None:
    """A module that is not an edge does not await, spawn, or use threads, clocks, files or
    the coordination client."""
    name = name_of(path)
    assert world_uses(tree(path)) == (PASSES_ON | IMPURE_SO_FAR).get(name, set())


@pytest.mark.parametrize("path", [path for path in MODULES if path.name in EDGE_NAMES], ids=name_of)
def test_what_is_called_an_edge_is_one(path: Path) -> None:
    """A reader may take a module of another name for deciding code, and one of these
    names for I/O."""
    assert world_uses(tree(path))


def test_what_decides_in_pipelines_is_listed() -> None:
    """A module that needs nothing of the world stays so; packages and what programs import
    have no code of their own."""
    rooms = [path for path in MODULES if name_of(path).count("/") > 1 and name_of(path).startswith("pipelines/")]
    deciding = {name_of(path) for path in rooms if path.name != "__init__.py" and not world_uses(tree(path))}
    assert deciding == {each for each in DECIDING_IN_EDGES if each.startswith("pipelines/")}


def test_every_exception_to_purity_is_a_module() -> None:
    """A module that is gone or has become an edge leaves the list."""
    deciding = {name_of(path) for path in MODULES if not is_edge(path)}
    assert set(IMPURE_SO_FAR) - deciding == set()


@pytest.mark.parametrize("path", [path for path in EDGE_PATHS if path.endswith(".py")])
def test_every_edge_that_is_listed_is_one(path: str) -> None:
    """A module that no longer does I/O leaves the list, and is deciding code from then on."""
    assert world_uses(tree(PACKAGE / path))


def test_the_purity_check_sees_what_it_forbids() -> None:
    """The check above can fail."""
    source = """
import time
from os import read
from barnabas.coordination.client import CoordinationClient
from barnabas.base.threads import InThread
async def work(): await other()
def begin(self, spawn): self._in_thread(spawn); open("x")
import io, os.path, uuid, numpy.random, some_new_package
from . import sibling
from uuid import UUID, uuid4
from barnabas.base.files import OsFiles, File
from barnabas.base.randomness import new_random
import logging.config
"""
    assert world_uses(ast.parse(source)) == {
        *("import time", "import os", "CoordinationClient", "InThread"),
        *("async", "spawn", "in_thread", "open()"),
        *("import io", "import os.path", "import uuid", "import numpy.random", "import some_new_package"),
        *("relative import", "OsFiles", "new_random", "import logging.config"),
    }


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import numpy as n\ndef f(): return n.random.default_rng()", {"numpy.random"}),
        ("import logging as l\nl.os.remove('x')", {"logging.os"}),
        ("import logging\nlogging.threading.Thread(target=f)", {"logging.threading"}),
        ("import logging\nlogging.FileHandler('x')", {"logging.FileHandler"}),
        ("def f():\n    from logging import time as t\n    return t.time()", {"logging.time"}),
        ("import cramjam\ncramjam.File('x')", {"cramjam.File"}),
        ("from types import coroutine as plain", {"types.coroutine"}),
        ("def f():\n    import asyncio as a\n    return a.sleep(1)", {"import asyncio"}),
        ("import barnabas.net.sockets as s\ns.asyncio.sleep(1)", {"import barnabas.net.sockets"}),
        ("from barnabas.net.sockets import *", {"*"}),
        ("from barnabas.base.clock import SystemClock as Words", {"SystemClock"}),
        ("from barnabas.base.clock import Clock as Words", {"Clock"}),
        ("from collections.abc import Awaitable as Answer", {"Awaitable"}),
        ("read = open\nread('x')", {"open()"}),
        ("say = [print]", {"print()"}),
        ("__builtins__['open']('x')", {"__builtins__()"}),
        ("globals()['op' + 'en']", {"globals()"}),
        ("def f(work): yield from work.__await__()", {"__await__"}),
        ("import json\njson.loads.__globals__", {"__globals__"}),
        ("def f(a): getattr(a, 'spawn')(a)", {"spawn"}),
        ("def f(a, b): getattr(a, 'sp' + b)", {"getattr()"}),
        ("import operator as o\nf = o.attrgetter('run_in_executor')", {"run_in_executor"}),
    ],
)
def test_the_purity_check_sees_through_other_names(source: str, found: set[str]) -> None:
    """An alias, an import inside a function, or the way through another module does not
    hide what code may reach."""
    assert world_uses(ast.parse(source)) == found


def definitions(path: Path) -> set[str]:
    """What others may import from a module: what it binds, what it names in __all__ and is no
    module, a package's modules."""
    names: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(tree(path)):
        match node:
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.Name(name, ast.Store()):
                names.add(name)
            case ast.Import(aliases):
                modules |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign([ast.Name("__all__")], ast.List(listed)):
                names |= {str(each.value) for each in listed if isinstance(each, ast.Constant)}
    names -= modules
    return names | {each.stem for each in path.parent.iterdir() if path.name == "__init__.py"}


def passed_through(module: ast.Module) -> set[str]:
    """Names that a module imports from a module of this project that did not define them."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "barnabas":
            base = SOURCES / node.module.replace(".", "/")
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            found |= {f"{node.module}.{alias.name}" for alias in node.names} - {
                f"{node.module}.{name}" for name in definitions(path)
            }
    return found


@pytest.mark.parametrize("path", [path for path in MODULES if not is_edge(path)], ids=name_of)
def test_a_name_is_imported_from_the_module_that_defines_it(path: Path) -> None:
    """Otherwise deciding code could have asyncio, or what an edge imports, from that edge."""
    assert passed_through(tree(path)) == set()


def test_the_check_of_imports_sees_a_name_that_was_only_passed_through() -> None:
    """The check above can fail."""
    source = "def f():\n    from barnabas.net.sockets import asyncio as waiting, SocketNetwork"
    assert passed_through(ast.parse(source)) == {"barnabas.net.sockets.asyncio"}


def test_the_purity_check_lets_pure_code_pass() -> None:
    """Values, types and other deciding code."""
    source = """
import json, struct, numpy as np
from collections.abc import Iterator
from uuid import UUID
from barnabas.base.files import File
def decide(file: File) -> bytes: return file.read_at(0, 1)
"""
    assert world_uses(ast.parse(source)) == set()


def test_a_subsystem_has_one_edge() -> None:
    """At most one module of each folder may do I/O, so a reader knows where to look for it."""
    edges = Counter(
        path.parent.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if path.name in EDGE_NAMES and name_of(path).split("/")[0] in SUBSYSTEM_PACKAGES
    )
    assert {folder: count for folder, count in edges.items() if count > EDGES_OF_FOLDER.get(folder, 1)} == {}


def test_imports_run_down_the_layers_only() -> None:
    """import-linter's contracts in pyproject.toml hold."""
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert program, "lint-imports is missing: run `make install`"
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_module_of_the_commands_imports_others_by_computed_names() -> None:
    """An import that import-linter cannot see could run upward or in a circle: the table of
    commands has the only one."""
    hidden = {name_of(path) for path in (PACKAGE / "cli").rglob("*.py") if "import importlib" in world_uses(tree(path))}
    assert hidden == {"cli/commands.py"}


def import_graph() -> dict[str, set[str]]:
    """Which module imports which, type-only imports included, for the modules of this project."""
    modules = {".".join(path.relative_to(SOURCES).with_suffix("").parts): path for path in MODULES}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        imported = graph.setdefault(name, set())
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                # "from package import module" imports the module; "from module
                # import name" the module alone.
                candidates = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= (candidates & modules.keys()) or {node.module}
        imported.intersection_update(modules)
        imported.discard(name)
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            position = stack.index(name)
            part = stack[position:]
            del stack[position:]
            if len(part) > 1:
                found.append(sorted(part))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_no_modules_import_each_other() -> None:
    """The import graph of src/barnabas has no circle, type-only imports included."""
    assert circles(import_graph()) == []


def test_the_circle_check_sees_a_circle() -> None:
    """The check above can fail."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def rooms() -> list[Path]:
    folders = [folder for name in PACKAGES_OF_ROOMS for folder in (PACKAGE / name).rglob("*") if folder.is_dir()]
    return sorted(folder for folder in folders if (folder / "__init__.py").exists())


# What programs import: it stays where it is. All rooms use errors and packages.
PIPELINE_MODULES = {"errors", "flows", "packages", "session", "source", "trial"}


def test_pipelines_are_rooms() -> None:
    """A new module goes into a room; beside the rooms stands only what programs
    import, and what all rooms use."""
    assert {path.stem for path in (PACKAGE / "pipelines").glob("*.py")} == PIPELINE_MODULES | {"__init__"}


@pytest.mark.parametrize("folder", rooms(), ids=name_of)
def test_a_room_names_its_counterpart(folder: Path) -> None:
    """Its docstring leads a reader who knows Kafka's, ZooKeeper's or Spark's classes
    to the right place."""
    text = ast.get_docstring(tree(folder / "__init__.py")) or ""
    assert any(system in text for system in ("Kafka", "ZooKeeper", "Spark"))
    assert re.search(r"[A-Z][a-z]+[A-Z]\w+", text.replace("ZooKeeper", "")), "name a class of the counterpart"


def public_names(module: ast.Module) -> set[str]:
    """What a module defines at its top for others to use; type variables are no definitions."""
    found = set()
    for node in module.body:
        match node:
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                found.add(name)
            case ast.Assign(value=ast.Call(ast.Name("TypeVar" | "ParamSpec"))):
                pass
            case ast.Assign(targets):
                found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.AnnAssign(ast.Name(name)):
                found.add(name)
    return {name for name in found if not name.startswith("_")}


def defined_twice(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The names that more than one module defines, with the modules."""
    places: dict[str, list[str]] = {}
    for path, module in modules.items():
        for name in public_names(module):
            places.setdefault(name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_a_public_name_has_one_meaning() -> None:
    """It is defined in one module, but for the pairs and families above; one that is
    settled leaves the list."""
    found = defined_twice({name_of(path): tree(path) for path in MODULES if "messages" not in path.parts})
    assert set(SHARED_NAMES) - found.keys() == set()
    pairs = {name: paths for name, paths in found.items() if name not in SHARED_NAMES}
    assert pairs == {name: [first, second] for name, (first, second, _) in SHARED_BY_TWO.items()}


def test_the_check_of_names_sees_a_name_with_two_meanings() -> None:
    """The check above can fail."""
    first = ast.parse("A, B = 1, 2\nclass C: ...\n_D = 1\nT = TypeVar('T')\nE: int = 1")
    second = ast.parse("B = 3\ndef C(): ...\n_D = 2\nT = TypeVar('T')\nasync def E(): ...")
    assert set(defined_twice({"first": first, "second": second})) == {"B", "C", "E"}


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the signature's first to the last, without the docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    doc_lines = 0 if docstring is None or docstring.end_lineno is None else docstring.end_lineno - docstring.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - doc_lines


def oversized(module: ast.Module) -> dict[str, str]:
    """What is larger than a reader's patience, by name."""
    found = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            methods = [
                each
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                and not any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in each.decorator_list)
            ]
            if len(methods) > MAX_METHODS:
                found[node.name] = f"{len(methods)} methods, not {MAX_METHODS}"
            for method in methods:
                parameters = len(method.args.args) + len(method.args.kwonlyargs) - 1
                if method.name == "__init__" and parameters > MAX_PARAMETERS:
                    found[f"{node.name}()"] = f"{parameters} parameters, not {MAX_PARAMETERS}"
    for function in functions(module):
        lines = body_lines(function)
        if lines > MAX_FUNCTION_LINES:
            found[function.name] = f"{lines} lines, not {MAX_FUNCTION_LINES}"
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_outgrows_a_readers_patience(path: Path) -> None:
    """Modules, classes, functions and constructors have limits (message declarations
    aside, which are lists)."""
    if "messages" in path.parts:
        return
    assert len(path.read_text().splitlines()) <= MAX_MODULE_LINES
    found = oversized(tree(path))
    assert set(found) == OVERSIZED_SO_FAR.get(name_of(path), set()), found


def test_the_size_check_sees_what_it_forbids() -> None:
    """The check above can fail."""
    parameters = ", ".join(f"p{number}" for number in range(MAX_PARAMETERS + 1))
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(MAX_METHODS))
    lines = "".join(f"    a = {number}\n" for number in range(MAX_FUNCTION_LINES))
    source = f"class Big:\n    def __init__(self, {parameters}): ...\n{methods}def long():\n{lines}"
    assert set(oversized(ast.parse(source))) == {"Big", "Big()", "long"}


def fields_given(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The kinds that `new_tuple` makes in a module, and with how many fields.

    -1 where that cannot be seen."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "new_tuple":
            kind, fields = node.args
            is_plain = isinstance(fields, ast.Tuple) and not any(isinstance(each, ast.Starred) for each in fields.elts)
            yield ast.unparse(kind), len(fields.elts) if is_plain else -1


def test_named_tuples_that_are_made_directly_have_all_their_fields() -> None:
    """`base.tuples.new_tuple` does not check that, and mypy cannot."""
    calls = 0
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if "import new_tuple" in source:
            module = importlib.import_module(".".join(path.relative_to(SOURCES).with_suffix("").parts))
            for kind, count in fields_given(ast.parse(source)):
                assert count == len(getattr(module, kind)._fields), f"{path}: {kind}"
                calls += 1
    assert calls > 5


def test_the_check_of_fields_counts_them() -> None:
    """Those that are written one by one."""
    tree = ast.parse("new_tuple(A, (1, 2, 3))\nnew_tuple(B, given)\nnew_tuple(C, (*given, 1))")
    assert list(fields_given(tree)) == [("A", 3), ("B", -1), ("C", -1)]


def test_every_test_has_a_docstring_that_says_what_it_checks() -> None:
    """Tests are the specification, so each has a docstring."""
    bare = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in functions(ast.parse(path.read_text())):
            if node.name.startswith("test_"):
                bare += [] if ast.get_docstring(node) else [f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"]
    assert bare == []


def test_every_module_of_tests_has_a_name_of_its_own() -> None:
    """pytest cannot collect two modules of one name in one run, as ``pytest``
    without arguments would."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []
