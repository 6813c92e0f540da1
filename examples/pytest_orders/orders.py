"""A service to be tested: it reads orders from one topic, and writes the total of each customer to another."""

import json
from collections import defaultdict

from confluent_kafka import Consumer, Producer


def total_orders(bootstrap_servers: str, source: str, target: str, *, patience_s: float = 5.0) -> int:
    """Read the orders that `source` has now, write one record a customer to `target`; return how many."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "totals",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([source])
    totals: dict[str, float] = defaultdict(float)
    while (message := consumer.poll(patience_s)) is not None and not message.error():
        order = json.loads(message.value() or b"")
        totals[order["customer"]] += float(order["amount"])
    consumer.commit(asynchronous=False)
    consumer.close()

    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for customer, total in totals.items():
        producer.produce(target, key=customer, value=json.dumps({"total": total}))
    producer.flush(patience_s)
    return len(totals)
