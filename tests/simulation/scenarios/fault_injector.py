"""What a fault acts on: the simulated machines, the seed's choices, and calls that
come later in the run."""

from collections.abc import Callable

from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.testing.simulation.simulation import Machine, Simulation
from simulation.scenarios.clients import ClusterClient

__all__ = ["FaultInjector"]


class FaultInjector:
    """The hands of the functions in `simulation.scenarios.faults`."""

    def __init__(
        self,
        simulation: Simulation,
        rng: Random,
        *,
        wiping: Callable[[Machine], None],
        damaged: Callable[[Machine, TopicPartition, int], None],
    ) -> None:
        """``wiping`` is called before a broker's disk is emptied, ``damaged`` after
        a log was damaged.

        Below the offset that ``damaged`` gets, everything is there.
        """
        self.simulation = simulation
        self.rng = rng
        self.history = simulation.history
        self.wiping = wiping
        self.damaged = damaged
        self.zombie: ClusterClient | None = None
        """Sends what a replaced controller might still send; None before the clients are there."""
        self.reconfigure: Callable[[], bool] = lambda: False
        """Requests other members of an ensemble, where they may change."""
        self.is_over = False
        """Whether the time for faults is over: nothing planned happens any more."""
        self.is_rolling = False

    def later(self, least_s: float, most_s: float, call: Callable[[], object]) -> None:
        """Call some time from now, unless the faults are over by then."""
        delay_s = self.rng.uniform(least_s, most_s)

        def run() -> None:
            if not self.is_over:
                call()

        self.simulation.loop.call_outside(int(delay_s * 1_000_000), run)

    def server(self) -> Machine | None:
        """A server that runs; brokers are chosen more often."""
        machines = [machine for machine in self.simulation.brokers if machine.is_running]
        coordination = [machine for machine in self.simulation.coordination if machine.is_running]
        if coordination and (not machines or self.rng.random() < 0.3):
            return self.rng.choice(coordination) if self.simulation.layout.is_ensemble else coordination[0]
        return self.rng.choice(machines) if machines else None

    def restart_later(self, machine: Machine, span_s: tuple[float, float] = (0.05, 8.0)) -> None:
        """A supervisor restarts the server."""
        machine.is_wanted = True

        def restart() -> None:
            if not machine.is_running:
                self.simulation.start(machine)

        self.later(*span_s, restart)
