"""What a member's log says of its way to serving, in the words of ZooKeeper's
`QuorumPeer.getDetailedPeerState`."""

import logging

__all__ = ["log_phase"]

logger = logging.getLogger(__name__)


def log_phase(role: str, phase: str, sync_mode: str = "") -> None:
    """A phase of Zab has begun for a server that is leading, following or observing, or a part of
    it: diff, snap or trunc."""
    logger.info("Peer state changed: %s", " - ".join(filter(None, (role, phase, sync_mode))))
