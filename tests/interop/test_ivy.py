"""A set of libraries is fetched once, is whole when it is there, and a failed fetch says what to do."""

from pathlib import Path

import pytest

from tests.support import ivy
from tests.support.ivy import Library, fetch
from tests.support.java import UnavailableError

LIBRARIES = (Library("org.example", "thing", "1.0"),)


class FakeIvy:
    """Stands in for the run of Ivy: fails as often as told, then brings one jar."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.runs = 0

    def __call__(self, folder: Path) -> str | None:
        self.runs += 1
        assert 'org="org.example" name="thing" rev=' in (folder / "ivy.xml").read_text()
        if self.runs <= self.failures:
            return "UNRESOLVED DEPENDENCIES"
        (folder / "jars" / "thing.jar").touch()
        return None


@pytest.fixture
def run_ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setattr(ivy, "CACHE", tmp_path)
    monkeypatch.setattr(ivy, "_run_ivy", fake)
    return fake


def test_fetched_once(run_ivy: FakeIvy) -> None:
    jars = fetch("things", LIBRARIES)
    assert [jar.name for jar in jars.iterdir()] == ["thing.jar"]
    assert fetch("things", LIBRARIES) == jars
    assert run_ivy.runs == 1


def test_other_coordinates_are_fetched_anew(run_ivy: FakeIvy) -> None:
    fetch("things", LIBRARIES)
    fetch("things", (Library("org.example", "thing", "2.0"),))
    assert run_ivy.runs == 2


def test_a_hiccup_is_survived(run_ivy: FakeIvy) -> None:
    run_ivy.failures = ivy.FETCH_ATTEMPTS - 1
    assert (fetch("things", LIBRARIES) / "thing.jar").exists()


def test_a_failed_fetch_leaves_nothing_that_looks_whole(run_ivy: FakeIvy, tmp_path: Path) -> None:
    run_ivy.failures = ivy.FETCH_ATTEMPTS
    with pytest.raises(UnavailableError, match=r"org.example:thing:1.0 .* UNRESOLVED"):
        fetch("things", LIBRARIES)
    assert not (tmp_path / "things").exists()
    assert (fetch("things", LIBRARIES) / "thing.jar").exists()
