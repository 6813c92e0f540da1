"""Data pipelines on PySpark Structured Streaming, one module per job.

A job module defines `JOB`: its parameters, its topics, and `build(spark, parameters)`, which starts its queries.
`bin/spark-job NAME` runs it. What jobs share is in `skeleton/`. Jobs read and write records through Spark's own Kafka
source and sink. The broker may be Milena or any other that speaks the protocol; jobs import none of the broker's code.
"""
