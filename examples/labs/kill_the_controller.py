"""Lab: the controller is killed.

One broker is the controller: the one whose ephemeral znode /controller was there first. The
others watch that znode. When it goes they all try to make it, one succeeds, raises the controller
epoch, and gives the dead broker's partitions to others. Requests of an older controller epoch are
refused by every broker.
"""

import sys
import time

from lab import Lab, run


def body(lab: Lab) -> None:
    """Kill the controller under a producer, and see who takes over."""
    lab.step("1. Who is the controller?")
    old = int(str(lab.znode("/controller", show=True)["brokerid"]))
    epoch = int(str(lab.znode("/controller_epoch", show=True)["value"]))
    lab.create("topic1", "--partitions 3 --replication-factor 3")
    lab.describe("topic1")
    lab.produce("topic1", [f"early {number}" for number in range(100)])

    lab.step(f"2. Broker {old}, the controller, is killed (kill -9)")
    began = time.monotonic()
    lab.cluster.kill_broker(old)
    others = {0, 1, 2} - {old}
    new = lab.until(
        lambda: (found := lab.znode("/controller").get("brokerid")) in others and (found,), "another controller"
    )[0]
    lab.say(f"Another controller was there {time.monotonic() - began:.1f} s later, the asking included:")
    lab.znode("/controller", show=True)
    later = int(str(lab.znode("/controller_epoch", show=True)["value"]))
    lab.say(f"Broker {new} took over from broker {old}.")
    lab.check(f"the controller epoch rose from {epoch} to {later}, by one", holds=later == epoch + 1, otherwise=later)

    lab.step("3. Its first work: the partitions that the dead broker led")
    lab.until(lambda: all(lab.in_sync("topic1", others, n) for n in range(3)), "leaders among those that live")
    lab.describe("topic1")
    states = [lab.state("topic1", n, show=True) for n in range(3)]
    leaders = [state["leader"] for state in states]
    lab.check("the znode of every partition names a living leader", holds=set(leaders) <= others, otherwise=leaders)
    changed = {int(str(state["controller_epoch"])) for state in states}
    lab.check("the new epoch stands in the state of what it changed", holds=later in changed, otherwise=changed)
    lab.produce("topic1", [f"late {number}" for number in range(100)])
    count = len(lab.read("topic1"))
    lab.check(f"no record is missing: {count}", holds=count == 200)

    lab.step(f"4. Broker {old} comes back, as an ordinary broker")
    lab.cluster.start_broker(old)
    lab.until(lambda: all(lab.in_sync("topic1", {0, 1, 2}, n) for n in range(3)), f"broker {old} in sync")
    lab.broker_ids()
    stays = lab.znode("/controller", show=True)["brokerid"]
    lab.check(f"the controller stays broker {new}", holds=stays == new, otherwise=stays)


if __name__ == "__main__":
    sys.exit(run("The controller is killed", body))
