"""Log directories between ZooKeeper and KRaft: what an interrupted change leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.disk.names import KRAFT_METADATA
from tests.tools.kraft.folders import make_folder
from tools.kraft import node_folders

RETIRED_LOG = ("00000000000000000000.log", "00000000000000000040-0000000003.checkpoint", "leader-epoch-checkpoint")


@pytest.mark.parametrize("removed", range(len(RETIRED_LOG) + 1))
def test_a_retired_log_that_is_half_removed_was_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    folder = node_folders.read_folder(make_folder(tmp_path / "data"))
    log = folder.path / KRAFT_METADATA
    log.mkdir()
    for name in RETIRED_LOG:
        (log / name).touch()
    node_folders.retire_metadata_log(folder, 3)
    unlink = Path.unlink

    def unlink_some(path: Path) -> None:
        if len(list(log.iterdir())) == len(RETIRED_LOG) + 1 - removed:
            raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(Path, "unlink", unlink_some)
    with pytest.raises(KeyboardInterrupt):
        node_folders.remove_metadata_log(folder)
    assert not node_folders.has_run_with_kraft(folder)
