"""CPU time, memory and descriptors of a process tree."""

import os
import subprocess
import sys

import pytest

from bench.processes import anonymous_mib, cpu_seconds, process_tree, resident_mib

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"])
child.wait()
"""


@pytest.fixture
def parent() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )


def test_a_tree_includes_children_and_their_memory(parent: subprocess.Popen[str]) -> None:
    with parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        parent.stdout.readline()
        tree = process_tree(parent.pid)
        assert tree[0] == parent.pid
        assert len(tree) == 2
        assert resident_mib(parent.pid) > resident_mib(tree[1]) > anonymous_mib(tree[1]) > 0
        assert cpu_seconds(parent.pid) >= cpu_seconds(tree[1]) >= 0
        parent.stdin.close()


def test_a_process_that_ended_has_used_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert (cpu_seconds(ended.pid), resident_mib(ended.pid)) == (0, 0)


def test_the_tree_of_the_parent_includes_this_process() -> None:
    assert os.getpid() in process_tree(os.getppid())
