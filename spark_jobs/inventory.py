"""Stock per item, and the balance and number of transactions of the bank account, from shipments, sales and returns.

Input: `{"type": "sale", "item": "chair", "quantity": 2, "price": 49.90}`, the price of one. A shipment adds to the
stock and costs money, a sale does the reverse, and a return undoes a sale.

Output: key `item|chair`, value `{"stock": 8}`; key `bank`, value `{"balance": 99.80, "transactions": 1}`. Each batch
emits the entries that it changed. Money is counted in decimals of two places.

Delivery: I. The last value of an entry is valid.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.pictures import Picture, Values
from spark_jobs.skeleton.records import COUNT_MAX, object_rule, read_input, start_dead_letters

BANK = "bank"
_EVENT = "type string, item string, quantity bigint, price decimal(18,2)"
_IS_EVENT = f"""body.type IN ('shipment', 'sale', 'return') AND body.item IS NOT NULL AND body.price >= 0
    AND body.quantity BETWEEN 1 AND {COUNT_MAX}"""


def build(spark: SparkSession, parameters: JobParameters) -> list[StreamingQuery]:
    rule = object_rule(parameters, _EVENT, _IS_EVENT, "a shipment, sale or return")
    entries = balances(read_input(spark, parameters, rule))
    return [
        start_topic_query(entries, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def balances(events: DataFrame) -> DataFrame:
    """Return the entries of items and bank, as key and value. Each event is a posting to one of each."""
    is_sale = f.col("body.type") == "sale"
    quantity = f.when(is_sale, -f.col("body.quantity")).otherwise(f.col("body.quantity"))
    money = -quantity * f.col("body.price")
    item = f.struct(
        f.concat(f.lit("item|"), "body.item").alias("key"), quantity.alias("stock"), f.lit(None).alias("money")
    )
    bank = f.struct(f.lit(BANK).alias("key"), f.lit(None).alias("stock"), money.alias("money"))
    totals = (
        events.select(f.explode(f.array(item, bank)).alias("posting"))
        .groupBy("posting.key")
        .agg(
            f.sum("posting.stock").alias("stock"),
            f.sum("posting.money").cast("decimal(38,2)").alias("balance"),
            f.count("posting.money").alias("transactions"),
        )
    )
    of_bank = f.to_json(f.struct("balance", "transactions"))
    of_item = f.to_json(f.struct("stock"))
    return totals.select("key", f.when(f.col("key") == BANK, of_bank).otherwise(of_item).alias("value"))


def draw(values: Values) -> Picture:
    stock = {key.removeprefix("item|"): json.loads(value)["stock"] for key, value in values.items() if key != BANK}
    balance = json.loads(values[BANK])["balance"] if BANK in values else 0
    return Picture(f"Stock by item; the bank has {balance:,.2f}", "pieces", bars=stock)


JOB = Job(
    name="inventory",
    doc=__doc__,
    parameters=JobParameters,
    build=build,
    input="stock-events",
    output="inventory",
    output_config=COMPACTED,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
