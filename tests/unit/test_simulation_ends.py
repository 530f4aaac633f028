"""What is left when a simulated cluster ends."""

import subprocess
import sys

PROGRAM = """
import asyncio, gc
from random import Random
from barnabas.testing.simulation.loop import Process, SimulatedLoop

async def serve():
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.gather()

async def scenario(process):
    await asyncio.sleep(1)
    process.die()

for seed in range(2):
    loop = SimulatedLoop()
    process = Process(loop, "broker", Random(seed))
    process.context.run(loop.create_task, serve())
    loop.run_until_complete(scenario(process))
    loop.close()
asyncio.run(asyncio.sleep(0))
del loop, process
gc.collect()
print("done")
"""


def test_a_process_that_was_killed_leaves_no_loop_of_asyncios_own() -> None:
    """Its ``finally`` blocks run after the simulation, when no loop runs, and may
    ask asyncio for one."""
    done = subprocess.run([sys.executable, "-W", "always", "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
