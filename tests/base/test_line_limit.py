from __future__ import annotations

from base.line_limit import LineLimit


def test_line_limit_admits_one_line_an_interval() -> None:
    limit = LineLimit(10)
    assert [limit.admit(now_s) for now_s in (0, 1, 9.9, 10, 11, 100)] == [0, None, None, 2, None, 1]


def test_line_limit_may_admit_several_lines_an_interval() -> None:
    limit = LineLimit(10, 2)
    assert [limit.admit(now_s) for now_s in (0, 1, 2, 9, 10, 10, 10)] == [0, 0, None, None, 2, 0, None]
