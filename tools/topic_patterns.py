"""Topic names as users choose them: one name, several with commas between them, or a regular expression.

Owns what users may write and the expression that it stands for. Must not know which topics there are.
"""

import re

from tools.command_line import UsageError


def topic_expression(text: str) -> str:
    """The regular expression of a choice: a comma is an "or", blanks and quotes around it are nothing."""
    return text.strip("\"' ").replace(",", "|").replace(" ", "")


def topic_pattern(text: str) -> re.Pattern[str]:
    """What the names of a choice match as a whole. Raises UsageError."""
    try:
        return re.compile(topic_expression(text))
    except re.error as error:
        raise UsageError(f"{text} is an invalid regex: {error}") from None
