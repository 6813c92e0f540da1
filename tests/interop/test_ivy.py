"""A set of libraries is fetched once and compared with the lock file; a failed fetch explains what to do."""

import hashlib
from pathlib import Path

import pytest

from tests.support import ivy
from tests.support.apache_kafka import library_sets
from tests.support.ivy import Library, WrongHashError, fetch, fetch_sets, locked_artifacts
from tests.support.java import UnavailableError

THING = Library("org.example", "thing", "1.0")
NEWER = Library("org.example", "thing", "2.0")


class FakeIvy:
    """A double for Ivy: fails a given number of times, then returns the files in `content`."""

    def __init__(self) -> None:
        self.failures = 0
        self.runs = 0
        self.content = {"thing-1.0.jar": b"one"}

    def __call__(self, folder: Path) -> str | None:
        self.runs += 1
        assert 'org="org.example" name="thing" rev=' in (folder / "ivy.xml").read_text()
        if self.runs <= self.failures:
            return "UNRESOLVED DEPENDENCIES"
        for name, content in self.content.items():
            (folder / "jars" / name).write_bytes(content)
        return None


def lock(library: Library, content: bytes) -> None:
    ivy.LOCK.write_text("# a comment\n\n" + ivy.section("things", {library: hashlib.sha256(content).hexdigest()}))


@pytest.fixture
def run_ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setattr(ivy, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(ivy, "LOCK", tmp_path / "libraries.lock")
    monkeypatch.setattr(ivy, "run_ivy", fake)
    lock(THING, b"one")
    return fake


def test_libraries_are_fetched_once(run_ivy: FakeIvy) -> None:
    jars = fetch("things", [THING])
    assert [jar.name for jar in jars.iterdir()] == ["thing-1.0.jar"]
    assert fetch("things", [THING]) == jars
    assert run_ivy.runs == 1


def test_a_changed_lock_fetches_again(run_ivy: FakeIvy) -> None:
    fetch("things", [THING])
    lock(NEWER, b"two")
    run_ivy.content = {"thing-2.0.jar": b"two"}
    assert [jar.name for jar in fetch("things", [NEWER]).iterdir()] == ["thing-2.0.jar"]
    assert run_ivy.runs == 2


def test_a_failed_fetch_is_retried(run_ivy: FakeIvy) -> None:
    run_ivy.failures = ivy.FETCH_ATTEMPTS - 1
    assert (fetch("things", [THING]) / "thing-1.0.jar").exists()


def test_a_failed_fetch_leaves_nothing_that_looks_complete(run_ivy: FakeIvy) -> None:
    run_ivy.failures = ivy.FETCH_ATTEMPTS
    with pytest.raises(UnavailableError, match=r"things .* UNRESOLVED"):
        fetch("things", [THING])
    assert not (ivy.CACHE / "things").exists()
    assert (fetch("things", [THING]) / "thing-1.0.jar").exists()


def lock_two_sets() -> None:
    """Lock two sets, of one version and of both."""
    one, two = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
    ivy.LOCK.write_text(ivy.section("both", {THING: one, NEWER: two}) + "\n" + ivy.section("one", {THING: one}))


def test_missing_sets_are_fetched_together(run_ivy: FakeIvy) -> None:
    lock_two_sets()
    run_ivy.content = {"thing-1.0.jar": b"one", "thing-2.0.jar": b"two"}
    fetch_sets(["one", "both"])
    assert {jar.name: jar.read_bytes() for jar in fetch("both", [NEWER]).iterdir()} == run_ivy.content
    assert [jar.name for jar in fetch("one", [THING]).iterdir()] == ["thing-1.0.jar"]
    fetch_sets(["one", "both"])
    assert run_ivy.runs == 1


def test_a_failed_fetch_of_several_sets_does_not_disturb_that_of_one(run_ivy: FakeIvy, tmp_path: Path) -> None:
    lock_two_sets()
    (tmp_path / "cache" / "one.partial" / "jars").mkdir(parents=True)
    (tmp_path / "cache" / "one.partial" / "jars" / "thing-2.0.jar").write_bytes(b"two")
    assert [jar.name for jar in fetch("one", [THING]).iterdir()] == ["thing-1.0.jar"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"thing-1.0.jar": b"changed"}, r"thing-1\.0\.jar .* has SHA-256 [0-9a-f]{64}, .* expects [0-9a-f]{64}"),
        ({}, r"thing-1\.0\.jar .* \(not fetched\), .* expects"),
        ({"thing-1.0.jar": b"one", "more-1.jar": b""}, r"more-1\.jar .* expects \(no such file\)"),
    ],
    ids=["changed", "missing", "unknown"],
)
def test_files_that_differ_from_the_lock_are_rejected(
    run_ivy: FakeIvy, content: dict[str, bytes], message: str
) -> None:
    run_ivy.content = content
    with pytest.raises(WrongHashError, match=message):
        fetch("things", [THING])
    run_ivy.content = {"thing-1.0.jar": b"one"}
    assert (fetch("things", [THING]) / "thing-1.0.jar").read_bytes() == b"one"


@pytest.mark.parametrize(("name", "library"), [("others", THING), ("things", NEWER)])
def test_libraries_outside_the_lock_are_not_fetched(run_ivy: FakeIvy, name: str, library: Library) -> None:
    with pytest.raises(LookupError, match="lock_libraries"):
        fetch(name, [library])
    assert run_ivy.runs == 0


@pytest.mark.parametrize("name", library_sets())
def test_every_set_is_locked(name: str) -> None:
    assert set(library_sets()[name]) <= locked_artifacts(name).keys()
