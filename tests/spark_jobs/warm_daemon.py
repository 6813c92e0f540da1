"""The parent of Spark's Python workers: it has imported what the workers need.

A worker is a fork of this process, and would import pandas and pyarrow again for itself. SIGUSR1 prints where a process
is, for `tests.spark_jobs.hanging`.
"""

import faulthandler
import gc
import signal

import confluent_kafka  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark import daemon
from pyspark.sql import functions  # noqa: F401
from pyspark.sql.streaming import stateful_processor_api_client  # noqa: F401
from pyspark.sql.streaming.proto import StateMessage_pb2  # noqa: F401

from spark_jobs.skeleton import delivery, records  # noqa: F401

faulthandler.register(signal.SIGUSR1)
gc.freeze()  # each task ends with a collection

if __name__ == "__main__":
    daemon.manager()
