"""The README's tables of speed and cost beside Apache Kafka.

``docs/generate.py`` writes them from ``docs/pictures/speed.json``. That file is what
``python bench/run.py --only load --output json`` prints.
"""

import json
from pathlib import Path

__all__ = ["speed_table"]

FIGURES = Path(__file__).parent / "pictures" / "speed.json"
THROUGHPUT = {
    "p1k_acks1 MB/s": "produce, records of 1 KB, acks=1, MB/s",
    "p1k_acksall_idem MB/s": "produce, 1 KB, idempotent, acks=all, MB/s",
    "p100_acks1 MB/s": "produce, 100 bytes, MB/s",
    "p1k_lz4 MB/s": "produce, 1 KB, lz4, MB/s",
    "p1k_batch16k MB/s": "produce, 1 KB, batches of 16 KB, MB/s",
    "c1k MB/s": "consume, 1 KB, MB/s",
}
COST = {
    "p1k_acks1 cpu_s_per_GB": "CPU of the broker for a GB, produce, s",
    "c1k cpu_s_per_GB": "CPU of the broker for a GB, consume, s",
    "sync_acks1_ms p50": "one record and its acknowledgement, median, ms",
    "sync_acks1_ms p99": "the same, 99 of 100, ms",
    "e2e_ms p99": "from producer to consumer, 99 of 100, ms",
    "memory after the load, MB (broker)": "memory of the broker after this load, MB",
}


def speed_table() -> str:
    """Both tables, and where the figures are from, in Markdown."""
    figures = json.loads(FIGURES.read_text())
    both = figures["barnabas"], figures["apache"]
    lines = [*_table("throughput, more is better", THROUGHPUT, *both), "", *_table("cost, less is better", COST, *both)]
    return "\n".join([*lines, "", f"({figures['measured_on']}.)"])


def _table(title: str, rows: dict[str, str], ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    lines = [f"| {title} | Barnabas | Apache Kafka | Barnabas / Apache |", "|---|---|---|---|"]
    for name, text in rows.items():
        ratio = ours[name] / theirs[name]
        lines.append(f"| {text} | {_figure(ours[name])} | {_figure(theirs[name])} | {ratio:.2g} |")
    return lines


def _figure(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
