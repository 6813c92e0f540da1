"""The pace of a controller whose event loop serves nobody else."""

from __future__ import annotations


class Unpaced:
    """Never gives way."""

    async def keep(self) -> None:
        return
