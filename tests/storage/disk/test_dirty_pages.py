"""When write-back should start, according to the files of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.disk.dirty_pages import DirtyPages

GROUP = "system.slice/milena.service"


class Kernel:
    """The files in which a kernel reports its dirty pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/cgroup", f"4:memory:/a/b\n0::/{GROUP}\n")
        self.write("proc/sys/vm/dirty_background_ratio", "10\n")
        self.has_dirty(0, threshold=1000)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def has_dirty(self, count: int, *, threshold: int) -> None:
        self.write(
            "proc/vmstat",
            f"nr_free_pages 9\nnr_dirty {count}\nnr_dirtied 99999999\nnr_writeback 0\n"
            f"nr_dirty_threshold {2 * threshold}\nnr_dirty_background_threshold {threshold}\nnr_after 1\n",
        )

    def limit(self, group: str, **limits: str) -> None:
        for name, text in limits.items():
            self.write(f"sys/fs/cgroup/{group}/memory.{name}", text + "\n")

    def group_has_dirty(self, group: str, size: int) -> None:
        self.write(f"sys/fs/cgroup/{group}/memory.stat", f"file 4096\nfile_dirty {size}\nfile_writeback 99999999\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_pages_are_many_above_half_of_the_kernels_threshold(kernel: Kernel) -> None:
    pages = DirtyPages(kernel.root)
    responses = []
    for count in (0, 499, 500, 501, 5000, 10):
        kernel.has_dirty(count, threshold=1000)
        responses.append(pages.are_many())
    assert responses == [False, False, False, True, True, False]
    kernel.has_dirty(501, threshold=2000)  # it follows the memory that is free
    assert not pages.are_many()


@pytest.mark.parametrize(
    ("limits", "many_from"),
    [
        ({"max": "40000"}, 2001),
        ({"max": "40000", "high": "max"}, 2001),
        ({"max": "40000", "high": "20000"}, 1001),
        ({"high": "0"}, 1),
    ],
)
@pytest.mark.parametrize("group", [GROUP, "system.slice", ""])
def test_cgroup_is_limited_by_itself_or_by_an_ancestor(
    kernel: Kernel, group: str, limits: dict[str, str], many_from: int
) -> None:
    kernel.limit(GROUP, max="max", high="max")
    kernel.limit(group, **limits)
    pages = DirtyPages(kernel.root)
    for size in (0, many_from - 1, many_from):
        kernel.group_has_dirty(group, size)
        assert pages.are_many() == (size == many_from)


def test_cgroup_without_a_limit_is_ignored(kernel: Kernel) -> None:
    kernel.limit(GROUP, max="max", high="max")
    kernel.group_has_dirty(GROUP, 1 << 40)
    assert not DirtyPages(kernel.root).are_many()


def test_dirty_pages_of_other_cgroups_are_not_counted(kernel: Kernel) -> None:
    kernel.limit(GROUP, max="40000")
    kernel.group_has_dirty(GROUP, 0)
    kernel.has_dirty(499, threshold=1000)
    assert not DirtyPages(kernel.root).are_many()


@pytest.mark.parametrize(("ratio", "many_from"), [("5", 1001), ("0", 2001)])
def test_background_ratio_of_the_machine_applies_to_a_cgroup(kernel: Kernel, ratio: str, many_from: int) -> None:
    kernel.write("proc/sys/vm/dirty_background_ratio", ratio + "\n")
    kernel.limit(GROUP, max="40000")
    pages = DirtyPages(kernel.root)
    for size in (many_from - 1, many_from):
        kernel.group_has_dirty(GROUP, size)
        assert pages.are_many() == (size == many_from)


@pytest.mark.parametrize("name", ["milena-\u00e4", "..", "gone (deleted)"])
def test_cgroup_with_any_name_is_read(kernel: Kernel, name: str) -> None:
    kernel.write("proc/self/cgroup", f"0::/{name}\n")
    assert not DirtyPages(kernel.root).are_many()


def test_pages_are_many_if_the_kernel_reports_nothing(tmp_path: Path) -> None:
    assert DirtyPages(tmp_path).are_many()
    Kernel(tmp_path).write("proc/vmstat", "nr_dirty 0\n")
    assert DirtyPages(tmp_path).are_many()


def test_counts_of_this_machine_are_read(kernel: Kernel) -> None:
    lines = Path("/proc/vmstat").read_text().splitlines()
    kernel.write("proc/vmstat", "\n".join("nr_dirty 0" if line.startswith("nr_dirty ") else line for line in lines))
    assert not DirtyPages(kernel.root).are_many()
