from typing import Any

import pytest

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.transforms.predicates import TopicNameMatches
from tests.spark_jobs.connect.golden.compare import check, parameters


@parameters("predicate")
def test_records_are_chosen_as_by_kafka(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    check(case, recorded)


def test_an_invalid_pattern_is_an_error_that_names_setting_and_value() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value a\( for configuration pattern"):
        TopicNameMatches().configure({"pattern": "a("})
