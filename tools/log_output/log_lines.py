"""Logging of the programs: on stderr, so that results can be piped, one line per event in Kafka's layout.

Owns the layout. Must not know what is logged.
"""

import logging
import sys

_LAYOUT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"


def log_to_stderr(level: int) -> None:
    """Send further log messages to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LAYOUT, "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.addLevelName(logging.WARNING, "WARN")
