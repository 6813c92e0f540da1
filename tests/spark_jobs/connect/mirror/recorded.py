"""What Kafka 3.9.1's own classes of MirrorMaker 2 returned (`tests/spark_jobs/connect/golden/record_mirror_maker.py`).

`records`: keys and values in hex. `policies`: names by replication policy. `translations`: pairs of offsets in order,
and positions with their translation (-2: none). `emissions`: offsets of copied records, and whether a pair was due.
`files`: properties of a dedicated MirrorMaker, and the settings of each flow. `connector_settings` and `definitions`:
names, types and defaults.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED: Any = json.loads(
    (Path(__file__).resolve().parents[3] / "fixtures" / "connect" / "mirror.json").read_text(encoding="utf-8")
)
