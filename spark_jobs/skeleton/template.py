"""Copies lines to another topic in capitals: replace this line, it is the one of `bin/spark-job --list`.

Run it:  bin/spark-job ./template.py --bootstrap-servers localhost:9092 --create-topics --checkpoint var/template

Delivery: U (spark_jobs/skeleton/delivery.py): each record has the header `record-id`, and readers drop ids that they
have seen.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, start_topic_query
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import read_input, start_dead_letters, text_rule


def build(spark: SparkSession, parameters: JobParameters) -> list[StreamingQuery]:
    """Start the queries of the job."""
    rule = text_rule()  # or object_rule(parameters, "name string, amount double", "body.name IS NOT NULL", "an order")
    rows = transform(read_input(spark, parameters, rule))
    return [start_topic_query(rows, parameters), *start_dead_letters(spark, parameters, rule)]


def transform(records: DataFrame) -> DataFrame:
    """Return the output for the input: key, value and headers. Test this function with a DataFrame of your own."""
    return records.select("key", f.upper("line").alias("value"), record_id_headers().alias("headers"))


JOB = Job(
    name="template",
    doc=__doc__,
    parameters=JobParameters,
    build=build,
    input="template-input",
    output="template-output",
)

if __name__ == "__main__":
    sys.exit(JOB.main())
