"""A pool that grows and shrinks while it is used."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as all_done

import pytest

from broker.loop.thread_pool import ThreadPool

WAIT_S = 10


def at_once(pool: ThreadPool, count: int) -> list[Future[int]]:
    """Pieces of work that end only once all `count` of them run together; the barrier breaks otherwise."""
    together = threading.Barrier(count)
    return [pool.submit(together.wait, WAIT_S) for _ in range(count)]


def test_concurrent_work_is_limited_to_the_threads_of_the_pool() -> None:
    pool = ThreadPool(1, "test", ThreadPoolExecutor)
    gate = threading.Event()
    first, second = pool.submit(gate.wait, WAIT_S), pool.submit(threading.get_ident)
    assert not second.done()
    gate.set()
    all_done([first, second], WAIT_S)
    pool.resize(3)
    assert sorted(future.result() for future in at_once(pool, 3)) == [0, 1, 2]
    pool.shutdown()


def test_a_change_of_size_loses_no_work() -> None:
    pool = ThreadPool(1, "test", ThreadPoolExecutor)
    gate = threading.Event()
    running = pool.submit(gate.wait, WAIT_S)
    queued = pool.submit(lambda: "queued")
    pool.resize(2)
    assert pool.submit(lambda: "new").result(WAIT_S) == "new"
    assert not queued.done()
    gate.set()
    assert queued.result(WAIT_S) == "queued"
    assert running.result()
    pool.shutdown()


def test_a_stop_waits_for_work_of_every_size() -> None:
    pool = ThreadPool(1, "test", ThreadPoolExecutor)
    gate = threading.Event()
    old = pool.submit(gate.wait, WAIT_S)
    pool.resize(2)
    new = pool.submit(gate.wait, WAIT_S)
    opener = threading.Timer(0.01, gate.set)
    opener.start()
    pool.shutdown()
    opener.join()
    assert old.done()
    assert new.done()
    with pytest.raises(RuntimeError):
        pool.submit(gate.wait)


def test_the_same_size_keeps_the_threads() -> None:
    pool = ThreadPool(1, "test", ThreadPoolExecutor)
    before = pool.submit(threading.get_ident).result(WAIT_S)
    pool.resize(1)
    assert pool.submit(threading.get_ident).result(WAIT_S) == before
    pool.shutdown()
