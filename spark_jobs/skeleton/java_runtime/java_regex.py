"""Regular expressions that Spark evaluates: those of Java, which differ from Python's."""

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from spark_jobs.skeleton.errors import JobError


def check_java_regex(spark: SparkSession, flag: str, text: str) -> None:
    """Raise JobError, which names the flag, unless Java reads `text` as a regular expression."""
    try:
        spark._jvm.java.util.regex.Pattern.compile(text)
    except IllegalArgumentException as error:
        reason = str(error).partition("\n")[0]  # the lines after it show the place in the pattern
        raise JobError(f"{flag}: expected a regular expression of Java, not '{text}': {reason}") from error
