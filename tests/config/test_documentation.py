"""The page of settings is current."""

from pathlib import Path

from config.documentation import page

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_page_is_generated_from_the_tables() -> None:
    assert PAGE.read_text() == page(), "run: python -m config.documentation > docs/configuration.md"
