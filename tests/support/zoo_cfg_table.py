"""Files zoo.cfg, and what Apache ZooKeeper's `QuorumPeerConfig` makes of each.

The verdicts are those that `ZooCfgProbe.java` printed on ZooKeeper 3.8.4;
``tests/interop/test_zoo_cfg_apache.py`` asks it again. In the texts, ``{dir}`` is the folder of the
file. Where this version decides otherwise, the row says so with a reason.
"""

from support.zoo_cfg_members import MEMBERS
from support.zoo_cfg_ports import PORTS
from support.zoo_cfg_settings import SETTINGS
from support.zoo_cfg_syntax import SYNTAX

__all__ = ["FILES"]

FILES = [*PORTS, *MEMBERS, *SETTINGS, *SYNTAX]
