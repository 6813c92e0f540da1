"""The table of docs/metrics.md. `PYTHONPATH=. .venv/bin/python -m tests.broker.metrics.table` writes it anew."""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path

from broker.metrics import endpoint
from broker.metrics.documentation import HEAD, table
from broker.metrics.registry import Registry
from tests.support.in_process import running_broker

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
SHOWN = re.compile(re.escape(HEAD[0]) + r"\n(?:\|.*\n)+")


async def table_of_a_broker(folder: Path) -> str:
    """Return the table that a broker's metrics make."""
    found: list[Registry] = []
    start = endpoint.MetricsEndpoint.start

    async def noted(self: endpoint.MetricsEndpoint, registry: Registry, *args: object, **options: object) -> None:
        found.append(registry)
        await start(self, registry, *args, **options)  # type: ignore[arg-type]

    endpoint.MetricsEndpoint.start = noted  # type: ignore[method-assign, assignment]
    try:
        async with running_broker(folder, {"metrics.http.listener": "127.0.0.1:0"}):
            return table(found[0].metrics)
    finally:
        endpoint.MetricsEndpoint.start = start  # type: ignore[method-assign]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = asyncio.run(table_of_a_broker(Path(folder)))
    PAGE.write_text(SHOWN.sub(lambda _: written, PAGE.read_text()))


if __name__ == "__main__":
    main()
