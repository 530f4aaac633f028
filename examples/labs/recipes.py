"""Lab: seven uses of a coordination service, each built from znodes, ephemerals,
sequence numbers and watches.

Configuration management, naming, locks, barriers, queues, leader election, and group membership
with its status in real time. Each recipe is a few lines on the plain client; every participant has
a session of its own, and some of them die.
"""

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.randomness import new_random
from barnabas.coordination.client import BlockingClient
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CreateMode

_PATIENCE_S = 60.0
_TICK_MS = 500


class CheckFailed(Exception):  # noqa: N818  # it is what happened
    """A claim did not hold."""


class Service:
    """A coordination server of its own, and sessions with it."""

    def __init__(self, folder: Path) -> None:
        config = folder / "zoo.cfg"
        config.write_text(
            f"tickTime={_TICK_MS}\ndataDir={folder}/data\nclientPort=0\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
        )
        command = [sys.executable, "-m", "barnabas", "zookeeper-server-start", str(config)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "Serving on port" in line:
                self.address = f"127.0.0.1:{line.split('Serving on port ')[1].split()[0]}"
                break
        else:
            raise BarnabasError("the coordination server did not start")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self.checks = 0
        print(f"  ready zk={self.address} pids=zookeeper:{self._process.pid}", flush=True)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(_PATIENCE_S)

    @contextlib.contextmanager
    def session(self) -> Iterator["Session"]:
        """A session that ends in an orderly way."""
        client = BlockingClient(SocketNetwork, self.address, rng=new_random(), session_timeout_ms=6000)
        try:
            client.start(10_000)
            yield Session(client)
        finally:
            client.close()

    @contextlib.contextmanager
    def mortal(self, path: str) -> Iterator[Callable[[], None]]:
        """Another process that makes a sequential ephemeral and waits.

        The function kills it with -9."""
        command = [sys.executable, "-m", "barnabas", "zookeeper-shell", "-timeout", "1000", self.address]
        shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"create -e -s {path} mortal\n")
        shell.stdin.flush()
        for line in shell.stdout:
            if line.startswith("Created"):
                break
        try:
            yield shell.kill
        finally:
            shell.kill()
            shell.wait()

    def check(self, claim: str, *, holds: bool, otherwise: object = "") -> None:
        """A claim that is printed when it holds and ends the lab when it does not."""
        if not holds:
            raise CheckFailed(f"{claim}: {otherwise}")
        self.checks += 1
        print(f"ok {claim}", flush=True)


class Session:
    """The operations of the recipes, for a thread."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def create(self, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT) -> str:
        return self._client.call(lambda client: client.create(path, data, mode))[0]

    def ensure(self, path: str) -> None:
        self._client.call(lambda client: client.ensure_path(path))

    def get(self, path: str, changed: threading.Event | None = None) -> bytes:
        watch = None if changed is None else lambda _event: changed.set()
        return self._client.call(lambda client: client.get(path, watch))[0] or b""

    def set(self, path: str, data: bytes) -> None:
        self._client.call(lambda client: client.set_data(path, data))

    def children(self, path: str, changed: threading.Event | None = None) -> list[str]:
        watch = None if changed is None else lambda _event: changed.set()
        return sorted(self._client.call(lambda client: client.get_children(path, watch))[0])

    def exists(self, path: str, changed: threading.Event) -> bool:
        found = self._client.call(lambda client: client.exists(path, lambda _event: changed.set()))
        return found is not None

    def delete(self, path: str) -> bool:
        """False if another session was faster."""
        try:
            self._client.call(lambda client: client.delete(path))
        except KeeperError as error:
            if error.code is not ErrorCode.NO_NODE:
                raise
            return False
        return True


def wait(event: threading.Event) -> None:
    """Return when the watch has fired."""
    if not event.wait(_PATIENCE_S):
        raise CheckFailed("a watch did not fire")


def together(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(number)`` in as many threads, and raise the first error."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# The recipes


def configuration(service: Service) -> None:
    """Every worker reads the settings with a watch, so a change reaches all of them
    at once and none polls."""
    seen: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    with service.session() as operator:
        operator.ensure("/config")
        operator.create("/config/app", b"level=info")
        all_read = threading.Barrier(4)

        def worker(number: int) -> None:
            if number == 3:
                all_read.wait(_PATIENCE_S)
                operator.set("/config/app", b"level=debug")
                return
            with service.session() as session:
                changed = threading.Event()
                seen[number].append(session.get("/config/app", changed))
                all_read.wait(_PATIENCE_S)
                wait(changed)
                seen[number].append(session.get("/config/app"))

        together(4, worker)
    expected = [b"level=info", b"level=debug"]
    service.check("three workers saw the change", holds=all(each == expected for each in seen.values()), otherwise=seen)


def naming(service: Service) -> None:
    """Sequence numbers are never given twice: they name things that are made at the same time."""
    names: list[str] = []
    with service.session() as first:
        first.ensure("/names")

    def register(number: int) -> None:
        with service.session() as session:
            addresses = (b"host%d:%d" % (number, port) for port in range(5))
            mode = CreateMode.PERSISTENT_SEQUENTIAL
            names.extend(session.create("/names/service-", address, mode) for address in addresses)

    together(4, register)
    with service.session() as reader:
        addresses = {reader.get(f"/names/{name}") for name in reader.children("/names")}
    service.check("20 registrations got 20 names", holds=len(set(names)) == 20, otherwise=names)
    service.check("each name leads to its address", holds=len(addresses) == 20, otherwise=addresses)


@contextlib.contextmanager
def locked(session: Session, path: str) -> Iterator[None]:
    """Hold the lock: the lowest number has it, and each waits for the one before it
    alone, so no herd wakes up."""
    own = session.create(f"{path}/lock-", b"", CreateMode.EPHEMERAL_SEQUENTIAL).rpartition("/")[2]
    while before := [name for name in session.children(path) if name[-10:] < own[-10:]]:
        gone = threading.Event()
        if session.exists(f"{path}/{max(before, key=lambda name: name[-10:])}", gone):
            wait(gone)
    try:
        yield
    finally:
        session.delete(f"{path}/{own}")


def lock(service: Service) -> None:
    """Four workers change a file that bears one writer at a time.

    A holder that is killed does not block them."""
    inside: list[int] = []
    total = 0
    with service.session() as first:
        first.ensure("/lock")
    with service.mortal("/lock/lock-") as kill:

        def work(number: int) -> None:
            nonlocal total
            if number == 4:
                time.sleep(0.2)
                kill()
                return
            with service.session() as session:
                for _ in range(5):
                    with locked(session, "/lock"):
                        inside.append(number)
                        found = total
                        time.sleep(0.002)
                        total = found + 1
                        if len(inside) != 1:
                            raise CheckFailed(f"{inside} hold the lock together")
                        inside.clear()

        together(5, work)
    service.check(
        "the holder that was killed lost the lock, and 20 changes were made one by one",
        holds=total == 20,
        otherwise=total,
    )


def barrier(service: Service) -> None:
    """No worker begins before all are there, and none leaves before all have
    finished (a double barrier)."""
    size = 4
    moments: list[tuple[str, float]] = []
    with service.session() as first:
        first.ensure("/barrier")

    def work(number: int) -> None:
        with service.session() as session:
            time.sleep(number * 0.05)
            moments.append(("came", time.monotonic()))
            ready = threading.Event()
            is_ready = session.exists("/ready", ready)
            session.create(f"/barrier/{number}", b"", CreateMode.EPHEMERAL)
            if len(session.children("/barrier")) < size:
                if not is_ready:
                    wait(ready)
            else:
                session.create("/ready")
            moments.append(("began", time.monotonic()))
            session.delete(f"/barrier/{number}")
            while True:
                changed = threading.Event()
                if not session.children("/barrier", changed):
                    break
                wait(changed)
            moments.append(("left", time.monotonic()))

    together(size, work)
    phases = {name: [moment for each, moment in moments if each == name] for name in ("came", "began", "left")}
    service.check(
        "none began before the last one came", holds=max(phases["came"]) <= min(phases["began"]), otherwise=moments
    )
    service.check(
        "none left before the last one had begun", holds=max(phases["began"]) <= min(phases["left"]), otherwise=moments
    )


def queue(service: Service) -> None:
    """Producers append, consumers take the lowest number.

    The one whose deletion succeeds has the item."""
    taken: list[bytes] = []
    with service.session() as first:
        first.ensure("/queue")

    def work(number: int) -> None:
        with service.session() as session:
            if number < 2:
                for item in range(15):
                    session.create("/queue/item-", b"%d-%02d" % (number, item), CreateMode.PERSISTENT_SEQUENTIAL)
                return
            while len(taken) < 30:
                changed = threading.Event()
                items = session.children("/queue", changed)
                if not items:
                    changed.wait(0.2)
                for name in items[:3]:
                    with contextlib.suppress(KeeperError):  # another consumer has it
                        data = session.get(f"/queue/{name}")
                        if session.delete(f"/queue/{name}"):
                            taken.append(data)

    together(5, work)
    service.check("30 items were taken, each once", holds=len(taken) == len(set(taken)) == 30, otherwise=taken)


def election(service: Service) -> None:
    """The lowest number leads; when its session ends, the next one does, and only
    that one is woken."""
    with service.session() as first:
        first.ensure("/election")
        with service.mortal("/election/candidate-") as kill, service.session() as second, service.session() as third:
            names = [
                session.create("/election/candidate-", b"", CreateMode.EPHEMERAL_SEQUENTIAL).rpartition("/")[2]
                for session in (second, third)
            ]
            leader = first.children("/election")[0]
            woken = [threading.Event(), threading.Event()]
            second.exists(f"/election/{leader}", woken[0])
            third.exists(f"/election/{names[0]}", woken[1])
            began = time.monotonic()
            kill()
            wait(woken[0])
            print(f"  {leader} was killed; {names[0]} leads {time.monotonic() - began:.1f} s later", flush=True)
            service.check("the second candidate leads", holds=first.children("/election")[0] == names[0])
            service.check("the third was not woken", holds=not woken[1].is_set())


def membership(service: Service) -> None:
    """Members are ephemerals with their status as data.

    A watcher shows who is there and how, as it changes."""
    shown: list[dict[str, str]] = []
    with service.session() as watcher, contextlib.ExitStack() as members:
        watcher.ensure("/members")

        def show() -> None:
            status = {name: watcher.get(f"/members/{name}").decode() for name in watcher.children("/members")}
            shown.append(status)
            print("  " + (", ".join(f"{name}: {text}" for name, text in status.items()) or "(none)"), flush=True)

        def at_next_change(act: Callable[[], object]) -> None:
            changed = threading.Event()
            for name in watcher.children("/members", changed):
                watcher.get(f"/members/{name}", changed)
            act()
            wait(changed)
            show()

        alice = members.enter_context(service.session())
        at_next_change(lambda: alice.create("/members/alice", b"starting", CreateMode.EPHEMERAL))
        at_next_change(lambda: alice.set("/members/alice", b"serving"))
        with service.session() as bob:
            at_next_change(lambda: bob.create("/members/bob", b"serving", CreateMode.EPHEMERAL))
            changed = threading.Event()
            watcher.children("/members", changed)
        wait(changed)
        show()
        kill = members.enter_context(service.mortal("/members/carol-"))
        show()
        at_next_change(kill)
    expected = [
        {"alice": "starting"},
        {"alice": "serving"},
        {"alice": "serving", "bob": "serving"},
        {"alice": "serving"},
    ]
    service.check("each change was seen when it happened", holds=shown[:4] == expected, otherwise=shown)
    service.check("a member that was killed is gone", holds=shown[-1] == {"alice": "serving"}, otherwise=shown)


_RECIPES = {
    "1. Configuration management": configuration,
    "2. Naming": naming,
    "3. Locks": lock,
    "4. Barriers": barrier,
    "5. Queues": queue,
    "6. Leader election": election,
    "7. Group membership, with its status in real time": membership,
}


def main() -> int:
    """All recipes; 0 when every claim held, 1 when one did not, 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("Seven recipes on one coordination server", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="barnabas-lab-", ignore_cleanup_errors=True) as folder:
            service = Service(Path(folder))
            try:
                for title, recipe in _RECIPES.items():
                    print(f"\n{title}\n{recipe.__doc__}", flush=True)
                    recipe(service)
            finally:
                service.stop()
        print(f"\n{service.checks} checks held. Nothing is left running.")
    except (CheckFailed, BarnabasError, OSError, subprocess.SubprocessError) as problem:
        print(f"\nfailed {problem}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
