"""The parent of Spark's Python workers, with the packages that the workers import.

A worker is a fork of this process. With pyspark's own daemon each worker would import pandas and pyarrow again, which
takes longer than most batches of the tests.
"""

import confluent_kafka  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark import daemon
from pyspark.sql import functions  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
