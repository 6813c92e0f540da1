"""Data pipelines on PySpark Structured Streaming, one module a job.

A job module has `build(spark, parameters) -> StreamingQuery` and a command line (`bin/spark-job <job>`).
Records are read and written through Spark's own Kafka source and sink; the broker behind them may be Milena or
any other that speaks the protocol, and nothing of the broker's code is imported here.
"""
