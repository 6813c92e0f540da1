"""Folders of any file system that Spark knows: a local one, HDFS, or an object store by its URI.

Jobs name checkpoints and tables by texts, and inspect them only through this module, so that no path has to be local.
"""

from typing import Any

from pyspark.sql import SparkSession


class Folder:
    """A folder by its path or URI; it does not have to exist."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.uri = uri
        self._spark = spark
        self._hadoop = spark._jvm.org.apache.hadoop.fs
        self._path = self._hadoop.Path(uri)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    def __str__(self) -> str:
        return self.uri

    def has(self, name: str) -> bool:
        return bool(self._files.exists(self._child(name)))

    def names(self) -> list[str]:
        """Return the names of files and folders in this folder, sorted; an absent folder has none."""
        if not self._files.exists(self._path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path))

    def size_bytes(self) -> int:
        """Return the size of all files below this folder; an absent folder has none."""
        return int(self._files.getContentSummary(self._path).getLength()) if self._files.exists(self._path) else 0

    def newest_change_ms(self) -> int:
        """Return when a file in this folder or in a folder below it changed last; 0 if there is none."""
        if not self._files.exists(self._path):
            return 0
        newest, folders = 0, [self._path]
        while folders:
            # listFiles would inspect each file again, and fail for those that a running job has removed meanwhile.
            for status in self._files.listStatus(folders.pop()):
                if status.isDirectory():
                    folders.append(status.getPath())
                else:
                    newest = max(newest, int(status.getModificationTime()))
        return newest

    def delete(self) -> None:
        """Delete this folder with all its content. Raises OSError if something of it is left."""
        if not self._files.delete(self._path, True) and self._files.exists(self._path):
            raise OSError(f"{self} cannot be deleted, or not all of it: its owner may be another user")

    def delete_file(self, name: str) -> None:
        self._files.delete(self._child(name), False)

    def is_new_checkpoint(self) -> bool:
        """Whether no query has started here, nor in a folder of it: a query with a name has its own.

        Spark writes `metadata` first, and the offsets of each batch later.
        """
        return not (self.has("metadata") or any(self.has(f"{name}/metadata") for name in self._folder_names()))

    def newest_batch(self) -> int:
        """Return the number of the newest batch that the query of this checkpoint has begun; -1 if there is none."""
        return Folder(self._spark, f"{self.uri}/offsets").highest_number()

    def highest_number(self, prefix: str = "") -> int:
        """Return the highest number that is a name after `prefix`, without its suffix; -1 if there is none."""
        numbers = [name.removeprefix(prefix).partition(".")[0] for name in self.names() if name.startswith(prefix)]
        return max((int(number) for number in numbers if number.isdecimal()), default=-1)

    def _folder_names(self) -> list[str]:
        """Return the names of the folders in this folder: HDFS refuses to look into a file."""
        if not self._files.exists(self._path):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._path) if status.isDirectory()]

    def read_text(self, name: str) -> str:
        stream = self._files.open(self._child(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a file in one step: readers see the old content or the new one."""
        partial = self._child(f".{name}.partial")
        stream = self._files.create(partial, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        # FileSystem.rename would refuse an existing target, and after its removal a crash would leave no file.
        kinds = self._hadoop.Options.Rename
        overwrite = self._spark.sparkContext._gateway.new_array(kinds, 1)
        overwrite[0] = kinds.OVERWRITE
        context = self._hadoop.FileContext.getFileContext(self._files.getUri(), self._files.getConf())
        context.rename(partial, self._child(name), overwrite)

    def _child(self, name: str) -> Any:
        return self._hadoop.Path(self._path, name)
