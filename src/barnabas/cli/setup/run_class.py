"""``barnabas run-class``: commands under the names of Kafka's and ZooKeeper's Java classes, as
``kafka-run-class.sh`` has them."""

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.cli.commands import by_class, command_main
from barnabas.cli.output.terminal import print

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Run the command that has the class's work."""
    classes = by_class()
    if not argv or argv[0] in ("-h", "--help"):
        print("Usage: barnabas run-class CLASS [OPTION ...]", "", "Classes:", sep="\n")
        for name, command in classes.items():
            print(f"  {name:<62}{command}")
        return 0 if argv else 2
    name, *rest = argv
    if name not in classes:
        raise BarnabasError(f"there is no class {name} here{did_you_mean(name, classes)}")
    return command_main(classes[name])(rest)
