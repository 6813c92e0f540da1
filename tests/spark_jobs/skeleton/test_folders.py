"""Folders are inspected through Hadoop's file systems, by path or by URI."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from spark_jobs.skeleton.folders import Folder

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_files_are_written_listed_read_and_deleted(scheme: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, f"{scheme}{tmp_path}/new")
    assert (folder.names(), folder.size_bytes(), folder.is_new_checkpoint()) == ([], 0, True)
    folder.write_text("metadata", "first")
    folder.write_text("metadata", "sécond")
    assert (folder.names(), folder.read_text("metadata"), folder.is_new_checkpoint()) == (["metadata"], "sécond", False)
    assert folder.size_bytes() == 7
    folder.delete()
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_not_deleted_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(spark, str(tmp_path))
    monkeypatch.setattr(folder, "_files", SimpleNamespace(delete=lambda *_: False, exists=lambda _: True))
    with pytest.raises(OSError, match=f"{tmp_path} cannot be deleted"):
        folder.delete()


def test_a_checkpoint_whose_queries_have_folders_of_their_own_is_not_new(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "gains").mkdir()
    assert Folder(spark, str(tmp_path)).is_new_checkpoint()
    (tmp_path / "gains" / "metadata").touch()
    assert not Folder(spark, str(tmp_path)).is_new_checkpoint()
