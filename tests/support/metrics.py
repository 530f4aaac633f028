"""The metrics page of a server, read by the parser of Prometheus' own client."""

import urllib.request
from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Metrics", "read_metrics"]


class Metrics:
    """A page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: dict[str, str] = {}
        self._values: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.kinds, f"{family.name} is there twice"
            self.kinds[family.name] = family.type
            for sample in family.samples:
                values = self._values.setdefault(sample.name, {})
                labels = frozenset(sample.labels.items())
                assert labels not in values, f"{sample.name} {sample.labels} is there twice"
                values[labels] = sample.value

    def __getitem__(self, name: str) -> float:
        """The one value of this name."""
        (value,) = self._values[name].values()
        return value

    def get(self, name: str, **labels: str) -> float | None:
        """The value with these labels."""
        return self._values.get(name, {}).get(frozenset(labels.items()))

    def by(self, label: str, name: str) -> Mapping[str, float]:
        """The values by one label, in the order of the page."""
        return {dict(labels)[label]: value for labels, value in self._values.get(name, {}).items()}

    def where(self, name: str, **labels: str) -> list[float]:
        """The values with these labels, whatever others they have."""
        wanted = frozenset(labels.items())
        return [value for found, value in self._values.get(name, {}).items() if wanted <= found]

    def labels(self, name: str) -> list[set[str]]:
        """The names of the labels of each sample of this name."""
        return [{label for label, _ in labels} for labels in self._values.get(name, {})]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)


def read_metrics(port: int) -> Metrics:
    """What a server on this machine shows at a port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return Metrics(response.read().decode())
