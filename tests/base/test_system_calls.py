"""The table of calls that not every Unix has."""

import fcntl
import os
import select
import socket
import sys

import pytest

from base.system_calls import SYSTEM_CALLS, system_calls

CALLS_OF_LINUX = (
    (os, "RWF_NOWAIT"),
    (os, "fdatasync"),
    (os, "memfd_create"),
    (fcntl, "F_OFD_SETLK"),
    (select, "epoll"),
    (socket, "MSG_MORE"),
    (socket, "TCP_INFO"),
)


def test_linux_has_all_but_the_full_sync() -> None:
    assert [name for name, value in SYSTEM_CALLS._asdict().items() if not value] == ["full_sync_command"]


def test_system_without_the_calls_of_linux_has_a_table_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in CALLS_OF_LINUX:
        monkeypatch.delattr(module, name)
    monkeypatch.setattr("base.system_calls.ctypes.CDLL", lambda *_, **__: object())
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self/fd")
    calls = system_calls()
    names = {name for name, value in calls._asdict().items() if not value}
    assert names == set(calls._fields) - {"sync_data", "descriptor_folder"}
    assert calls.sync_data is os.fsync
    assert calls.descriptor_folder == "/dev/fd"


def test_numbers_of_another_system_are_used_only_where_no_struct_of_linux_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    calls = system_calls()
    assert calls.full_sync_command == 51
    assert not calls.has_description_locks, "its struct flock has another layout"
    assert calls.tcp_info_option is None, "its structure has another layout"
