"""When appended data should begin to go to the disk, as the kernel's own files tell it."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from storage.dirty_pages import DirtyPages

PAGE_SIZE = resource.getpagesize()


class Kernel:
    """The files in which a kernel tells what it holds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/cgroup", "4:memory:/a/b\n0::/system.slice/milena.service\n")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def limit(self, name: str, text: str) -> None:
        self.write(f"sys/fs/cgroup/system.slice/milena.service/{name}", text + "\n")

    def has_dirty(self, count: int, *, threshold: int) -> None:
        self.write(
            "proc/vmstat",
            f"nr_free_pages 9\nnr_dirty {count}\nnr_dirtied 99999999\nnr_writeback 0\n"
            f"nr_dirty_threshold {2 * threshold}\nnr_dirty_background_threshold {threshold}\n",
        )


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_many_is_more_than_half_of_where_the_kernel_begins(kernel: Kernel) -> None:
    pages = DirtyPages(kernel.root)
    answers = []
    for count in (0, 499, 500, 501, 5000, 10):
        kernel.has_dirty(count, threshold=1000)
        answers.append(pages.are_many())
    assert answers == [False, False, False, True, True, False]
    kernel.has_dirty(501, threshold=2000)  # it follows the memory that is free
    assert not pages.are_many()


@pytest.mark.parametrize(
    ("limits", "many_from"),
    [
        ({}, 501),
        ({"memory.max": "max", "memory.high": "max"}, 501),
        ({"memory.max": str(4000 * PAGE_SIZE), "memory.high": "max"}, 201),
        ({"memory.max": str(4000 * PAGE_SIZE), "memory.high": str(2000 * PAGE_SIZE)}, 101),
        ({"memory.max": str(400_000 * PAGE_SIZE)}, 501),
    ],
)
def test_a_cgroup_with_less_memory_sets_the_limit(kernel: Kernel, limits: dict[str, str], many_from: int) -> None:
    for name, text in limits.items():
        kernel.limit(name, text)
    pages = DirtyPages(kernel.root)
    for count in (many_from - 1, many_from):
        kernel.has_dirty(count, threshold=1000)
        assert pages.are_many() == (count == many_from)


def test_the_limit_of_a_container_that_sees_only_itself(kernel: Kernel) -> None:
    kernel.write("proc/self/cgroup", "0::/\n")
    kernel.write("sys/fs/cgroup/memory.max", f"{4000 * PAGE_SIZE}\n")
    kernel.has_dirty(201, threshold=1000)
    assert DirtyPages(kernel.root).are_many()


def test_a_kernel_that_tells_nothing_is_not_waited_for(tmp_path: Path) -> None:
    assert DirtyPages(tmp_path).are_many()
    Kernel(tmp_path).write("proc/vmstat", "nr_dirty 0\n")
    assert DirtyPages(tmp_path).are_many()


def test_the_files_of_this_machine_are_understood() -> None:
    """Whatever it has, it is not a kernel that tells nothing."""
    text = Path("/proc/vmstat").read_text()
    assert "\nnr_dirty " in text
    assert "\nnr_dirty_background_threshold " in text
