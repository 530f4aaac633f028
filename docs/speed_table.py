"""The README's table of speed beside Apache Kafka. ``docs/generate.py`` writes it from ``docs/pictures/speed.json``.

That file is what ``python bench/run.py --only load --output json`` prints. A file with ``ratio`` alone, Barnabas's figure to
Apache's, gives a table of ratios.
"""

import json
from pathlib import Path

__all__ = ["speed_table"]

FIGURES = Path(__file__).parent / "pictures" / "speed.json"
ROWS = (
    ("p1k_acks1", "MB/s", "produce, 1 KB records, acks=1"),
    ("p1k_acksall_idem", "MB/s", "produce, 1 KB, idempotent, acks=all"),
    ("p100_acks1", "MB/s", "produce, 100-byte records"),
    ("p1k_lz4", "MB/s", "produce, 1 KB, lz4"),
    ("p1k_batch16k", "MB/s", "produce, 1 KB, batches of 16 KB"),
    ("c1k", "MB/s", "consume, 1 KB"),
    ("sync_acks1_ms", "p50", "one record and its acknowledgement, median (ms)"),
    ("sync_acks1_ms", "p99", "the same, 99 of 100 (ms)"),
    ("e2e_ms", "p99", "from producer to consumer, 99 of 100 (ms)"),
)
MEMORY = "memory after the load, MB (broker)"
CPU = "cpu_s_per_GB"


def speed_table() -> str:
    """The table, in Markdown."""
    figures = json.loads(FIGURES.read_text())
    rows = [(title, f"{name} {unit}", f"{name} {CPU}") for name, unit, title in ROWS]
    rows.append(("memory of the broker after it (MB)", MEMORY, ""))
    if "ratio" in figures:
        ratio = figures["ratio"]
        lines = ["| | Barnabas to Apache Kafka | CPU of the broker for it |", "|---|---|---|"]
        lines += [
            f"| {title} | {ratio[name]:.2g} | {_cpu(ratio.get(cpu))} |" for title, name, cpu in rows if name in ratio
        ]
        return "\n".join(lines)
    ours, theirs = figures["barnabas"], figures["apache"]
    lines = ["| | Barnabas | Apache Kafka | ratio | ratio of the broker's CPU |", "|---|---|---|---|---|"]
    for title, name, cpu in rows:
        if name in ours and theirs.get(name):
            busy = ours[cpu] / theirs[cpu] if theirs.get(cpu) and cpu in ours else None
            ratio = ours[name] / theirs[name]
            lines.append(f"| {title} | {ours[name]:.3g} | {theirs[name]:.3g} | {ratio:.2g} | {_cpu(busy)} |")
    return "\n".join(lines)


def _cpu(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2g}"
