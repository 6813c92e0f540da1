"""Word counts equal a plain count of the words, also across a restart."""

import pytest

from spark_jobs.wordcount import JOB
from tests.spark_jobs.conftest import JobRunner, Topics, last_values, lines
from tests.spark_jobs.plain_results import plain_counts, word_lines

pytestmark = pytest.mark.spark

AIRPORTS = 3_376


@pytest.mark.parametrize("count", [500, pytest.param(AIRPORTS, marks=pytest.mark.soak)])
def test_counts_of_the_airports_names_equal_a_plain_count_after_a_restart(
    count: int, topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("words", 2), topics.create("counts", 1)
    texts = word_lines(count)
    assert len(texts) == count
    flags = ["--input", source, "--output", target, "--stop-words", "the,of"]
    for half in (texts[: count // 3], texts[count // 3 :]):
        topics.send(source, [*lines(*half[::2]), *lines(*half[1::2], partition=1)])
        job_runner.run(JOB, *flags)
    assert last_values(topics.read(target)) == plain_counts(texts, {"the", "of"})


def test_words_are_split_at_everything_but_letters_digits_and_underscores(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("words"), topics.create("counts", 1)
    topics.send(source, lines("The café, the CAFÉ!", "a_1 -- a_1", "", "   "))
    job_runner.run(JOB, "--input", source, "--output", target)
    assert last_values(topics.read(target)) == {"café": "2", "a_1": "2"}
