"""Which schemas of a page's records are fetched from the registry."""

from types import SimpleNamespace
from typing import Any, cast

from broker.console.console import Console
from broker.console.records.pieces import Found
from broker.console.records.registry_values import SCHEMAS_MAX, Opened, Unopened, schema_values
from protocol.records.batch import Record


def value(schema_id: int) -> bytes:
    """A string in Confluent's wire format."""
    return b"\0" + schema_id.to_bytes(4) + b"\x04hi"


async def test_a_page_asks_for_a_bounded_number_of_schemas() -> None:
    asked: list[int] = []

    async def schema(schema_id: int) -> dict[str, Any]:
        asked.append(schema_id)
        return {"schema": '"string"', "schemaType": "AVRO"}

    async def run(work: Any) -> Any:
        return work()

    parts: Any = SimpleNamespace(
        services=SimpleNamespace(cpu_pool=SimpleNamespace(run=run)), schemas=SimpleNamespace(schema=schema)
    )
    found: list[Any] = [
        SimpleNamespace(record=Record(number, 0, None, value(number), [])) for number in range(SCHEMAS_MAX + 1)
    ]
    values = await schema_values(cast(Console, parts), cast("list[Found]", found))
    assert asked == list(range(SCHEMAS_MAX))
    assert isinstance(values.opened(value(SCHEMAS_MAX - 1)), Opened)
    refused = values.opened(value(SCHEMAS_MAX))
    assert isinstance(refused, Unopened)
    assert refused.problem == f"the records have {SCHEMAS_MAX + 1} schemas, {SCHEMAS_MAX} at most are used"
