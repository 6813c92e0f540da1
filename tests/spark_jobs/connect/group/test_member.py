"""A worker that reaches no broker: others have its work after the session timeout, so it gives it up."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from spark_jobs.connect.group.member import Member, Round, Settings
from spark_jobs.connect.group.protocol import NO_WORK, Work
from tests.support.waiting import wait_until
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.bootstrap import Endpoint
from tools.client.client_security import Security


class Events:
    def __init__(self) -> None:
        self.losses = 0

    def config_offset(self) -> int:
        return 0

    def configured(self, config_offset: int) -> tuple[Work, int]:
        return NO_WORK, config_offset

    def rebalanced(self, found: Round) -> None: ...

    def lost(self) -> Future[None]:
        self.losses += 1
        done: Future[None] = Future()
        done.set_result(None)
        return done


@pytest.mark.parametrize("error", [CallTimedOut("no response"), ConnectionError("refused"), RuntimeError("a bug")])
def test_work_is_given_up_after_the_session_timeout(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(AdminClient, "coordinator", fail)
    settings = Settings("g", "http://127.0.0.1:1/", ["sessioned"], 1, 1_000, 100, 0, "c")
    events = Events()
    member = Member(settings, [Endpoint("127.0.0.1", 1)], Security(), events)
    member.member_id = "m"
    member.start()
    wait_until(lambda: events.losses)
    member.stop(10)
