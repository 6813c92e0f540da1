"""Data pipelines on PySpark Structured Streaming, one module per job.

A job module has `build(spark, parameters) -> StreamingQuery` and a command line (`bin/spark-job <job>`).
Jobs read and write records through Spark's own Kafka source and sink. The broker may be Milena or any other that
speaks the protocol; jobs import none of the broker's code.
"""
