"""Work that coroutines do one at a time, in the order in which they asked.

Owns the order. Must not know the work.
"""

from __future__ import annotations

import asyncio


class InOrder(asyncio.Lock):
    """`async with` it around reads of the store and their effects: an older read must not undo a newer one.

    The lock of asyncio is fair: whoever asks first is first, however long each waits inside.
    """
