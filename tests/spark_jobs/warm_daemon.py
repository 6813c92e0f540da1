"""The parent of Spark's Python workers: it has imported what the workers need.

A worker is a fork of this process, and would import pandas and pyarrow again for itself.
"""

import gc

import confluent_kafka  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark import daemon
from pyspark.sql import functions  # noqa: F401

gc.freeze()  # each task ends with a collection

if __name__ == "__main__":
    daemon.manager()
