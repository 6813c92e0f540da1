"""The parent of Spark's Python workers: it has imported what the workers need, and not from an archive.

A worker is a fork of this process, and would import pandas and pyarrow again for itself. Each task invalidates the
caches of imports: with pyspark.zip on the path, as Spark sets it, Python then reads the zip's directory about twenty
times, which takes longer than most tasks of the tests. The installed package is the same.
"""

import gc
import sys

sys.path[:] = [folder for folder in sys.path if not folder.endswith(".zip")]
sys.path_importer_cache.clear()

import confluent_kafka  # noqa: E402, F401
import pandas as pd  # noqa: E402, F401
import pyarrow as pa  # noqa: E402, F401
from pyspark import daemon  # noqa: E402
from pyspark.sql import functions  # noqa: E402, F401

gc.freeze()  # each task ends with a collection

if __name__ == "__main__":
    daemon.manager()
