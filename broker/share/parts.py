"""What serves share groups on one broker, but for the groups themselves."""

from __future__ import annotations

from base.dataclass import dataclass
from broker.coordination.background import Unfinished
from broker.share.links import StateLinks
from broker.share.machine.sessions import ShareSessions
from broker.share.share_fetch import ShareFetchService
from broker.share.shared_partition import SharedPartitions
from broker.share.states import ShareStates


@dataclass(frozen=True, slots=True)
class ShareParts:
    """The parts, which are made when the first share group is there."""

    states: ShareStates
    """The share coordinator of this broker."""
    links: StateLinks
    """All share coordinators."""
    partitions: SharedPartitions
    sessions: ShareSessions
    fetches: ShareFetchService

    async def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        unfinished = self.partitions.stop()
        await self.states.partitions.stop()
        return unfinished
