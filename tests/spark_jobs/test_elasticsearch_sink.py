"""Documents reach a server with the bulk call; a repeated batch overwrites them, and a busy server gets them again."""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_jobs.elasticsearch_sink import JOB, Login, Server, login_of_environment, send
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, objects
from tests.spark_jobs.elasticsearch import Index


@pytest.fixture
def index() -> Iterator[Index]:
    with Index.serving() as server:
        yield server


@pytest.mark.spark
@pytest.mark.parametrize("ignore_keys", [False, True])
def test_documents_have_the_key_or_the_place_as_their_id(
    ignore_keys: bool, index: Index, topics: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("Documents", 1)
    topics.send(topic, [*objects({"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "n": 3}, key="id")])
    flags = ["--input", topic, "--url", index.url, "--bulk-records", "2"]
    flags += ["--ignore-keys"] if ignore_keys else []
    for checkpoint in ("first", "again"):
        job_runner.run(JOB, *flags, "--checkpoint", str(job_runner.folder / checkpoint))
    if ignore_keys:
        assert index.documents == {
            (topic.lower(), f"{topic}+0+{n - 1}"): {"id": "b" if n == 2 else "a", "n": n} for n in (1, 2, 3)
        }
    else:
        assert {key: document["n"] for (_, key), document in index.documents.items()} == {"a": 3, "b": 2}
        topics.send(topic, [Sent(None, b"a")])
        job_runner.run(JOB, *flags, "--checkpoint", str(job_runner.folder / "again"))
        assert [key for _, key in index.documents] == ["b"]
    assert len(index.requests) >= 4


@pytest.mark.spark
def test_objects_that_only_spark_takes_for_json_are_unreadable(
    index: Index, topics: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("nearly", 1)
    values = [b"{'n': 1}", b'{"n": 2} {', b'{"n": NaN}', b"[3]", b'{"n": 4}']
    topics.send(topic, [Sent(value, b"%d" % number) for number, value in enumerate(values)])
    job_runner.run(JOB, "--input", topic, "--url", index.url, "--on-error", "skip")
    assert index.documents == {(topic, "4"): {"n": 4}}


@pytest.mark.spark
def test_keys_that_cannot_be_ids_are_unreadable(index: Index, topics: Topics, job_runner: JobRunner) -> None:
    topic = topics.create("keys", 1)
    longest = "\u00e9" * 256
    for key in (b"\xff", b"\xfe", b"", b"k" * 513, longest.encode()):
        topics.send(topic, [Sent(b"{}", key)])
    topics.send(topic, [Sent(None, b"\xff")])
    (batch,) = job_runner.run(JOB, "--input", topic, "--url", index.url, "--on-error", "skip")
    assert (batch.malformed, list(index.documents)) == (5, [(topic, longest)])


@pytest.mark.spark
def test_topics_with_the_same_index_are_refused(job_runner: JobRunner) -> None:
    with pytest.raises(JobError, match="--input: Orders and orders have the same index, orders"):
        job_runner.start(JOB, "--input", "Orders,customers,orders", "--url", "http://127.0.0.1:9")


def row(text: str | None, document_id: str = "1") -> SimpleNamespace:
    return SimpleNamespace(topic="t", document_id=document_id, text=text)


def test_refused_documents_and_a_silent_server_fail_the_task(index: Index) -> None:
    with pytest.raises(JobError, match=rf"--url: {index.url} refused 1 documents: .*mapper_parsing_exception"):
        send([row('{"bad": 1}'), row("{}")], Server(index.url), 10)
    with pytest.raises(JobError, match=r"--url: http://127\.0\.0\.1:9 does not respond"):
        send([row("{}")], Server("http://127.0.0.1:9"), 10)


def test_a_document_of_an_index_that_does_not_exist_needs_no_deletion(index: Index) -> None:
    index.absent.add("t")
    send([row(None), row(None, "2")], Server(index.url), 10)
    with pytest.raises(JobError, match=r"refused 1 documents: .*index_not_found_exception"):
        send([row(None), row("{}")], Server(index.url), 10)


class Pauses(list[float]):
    """A clock that the pauses advance."""

    def sleep(self, seconds: float) -> None:
        self.append(seconds)

    def monotonic(self) -> float:
        return sum(self)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    clock = Pauses()
    monkeypatch.setattr("spark_jobs.elasticsearch_sink.time", clock)
    return clock


def test_a_busy_server_gets_the_documents_again_after_the_time_that_it_names(index: Index, pauses: Pauses) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    index.first_responses = [(429, {"Retry-After": "7"}), (503, {"Retry-After": date}), (503, {}), (429, {})]
    send([row('{"n": 1}')], Server(index.url), 10)
    assert index.documents == {("t", "1"): {"n": 1}}
    assert pauses[0] == 7
    assert 90 < pauses[1] <= 100
    assert 1 <= pauses[2] <= 2 <= pauses[3] <= 4


def test_documents_from_the_first_one_that_was_too_many_are_sent_again_in_order(index: Index, pauses: Pauses) -> None:
    index.first_responses = [{"b", "c"}, {"c"}]
    rows = [row('{"n": 1}', "a"), row('{"n": 1}', "b"), row('{"n": 1}', "c"), row('{"n": 2}', "b")]
    send(rows, Server(index.url), 10)
    assert index.requests == [["a", "b", "c", "b"], ["b", "c", "b"], ["c", "b"]]
    assert {document_id: document["n"] for (_, document_id), document in index.documents.items()} == {
        "a": 1, "b": 2, "c": 1,
    }  # fmt: skip
    assert len(pauses) == 2


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "3600"}, {"Retry-After": "soon"}])
def test_a_server_that_stays_busy_fails_the_task(headers: Mapping[str, str], index: Index, pauses: Pauses) -> None:
    index.first_responses = [(503, headers)] * 100
    with pytest.raises(JobError, match=rf"--url: {index.url} responds 503 and does not take 1 documents"):
        send([row("{}")], Server(index.url), 10)
    assert sum(pauses) <= 300
    assert (len(pauses) > 10) is (headers.get("Retry-After") != "3600")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ((401, {}), "responds 401: busy"),
        ((307, {"Location": "http://127.0.0.1:9/_bulk"}), "responds 307: busy"),
        ((200, {}), "responds with no result of a bulk request"),
    ],
)
def test_other_responses_fail_the_task_without_another_try(
    response: tuple[int, Mapping[str, str]], message: str, index: Index, pauses: Pauses
) -> None:
    index.first_responses = [response]
    with pytest.raises(JobError, match=f"--url: {index.url} {message}"):
        send([row("{}")], Server(index.url, Login("Basic c2VjcmV0")), 10)
    assert pauses == []


REQUIRED = ["--bootstrap-servers", "b:1", "--checkpoint", "/c"]
BASIC = f"Basic {base64.b64encode('ann:päss:word'.encode()).decode()}"


def parsed_login(url: str, *flags: str) -> Login | None:
    return JOB.parse([*REQUIRED, "--url", url, *flags]).login


def test_logins_of_a_file_and_of_the_environment_reach_the_server(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "login.properties"
    logins = []
    for text in ("username=ann\npassword=p\u00e4ss:word\n", "api-key=a2V5\n"):
        file.write_text(text, encoding="utf-8")
        logins.append(parsed_login(index.url, "--login", str(file)))
    assert login_of_environment() is None
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", "a2V5")
    logins.append(login_of_environment())
    for login in [*logins, None]:
        send([row("{}")], Server(index.url, login), 10)
    assert index.logins == [BASIC, "ApiKey a2V5", "ApiKey a2V5", None]
    assert "a2V5" not in repr(logins)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("username=ann\n", "expected username and password, or api-key in its encoded form, and nothing else"),
        ("username=ann\npassword=secret\napi-key=secret\n", "expected username and password, or api-key"),
        ("secret\n", "expected username and password, or api-key"),
        ("api-key=secret\\nsecret\n", "expected username and password, or api-key"),
        (None, "cannot read"),
    ],
)
def test_a_login_that_is_not_complete_is_refused_without_its_values(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "login.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as exit_:
        parsed_login("http://h:1", "--login", str(file))
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert f"argument --login: {'cannot read ' if text is None else ''}{file}: " in error
    assert message in error
    assert "secret" not in error
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", "secret")
    with pytest.raises(
        JobError, match=r"^ELASTICSEARCH_PASSWORD: expected username and password, or api-key"
    ) as raised:
        login_of_environment()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://ann:secret@h:9200", "h:9200", "ftp://h"])
def test_a_url_with_a_login_or_another_scheme_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed_login(url)
    error = capsys.readouterr().err
    assert "argument --url: expected " in error
    assert "secret" not in error
