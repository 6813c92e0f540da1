"""Which topics are mirrored, and what they are called at the target."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

INTERNAL = "__.*"


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics that match `pattern` and not `blacklist`; a name is mapped, or else prefixed."""

    pattern: str
    blacklist: str | None = None
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    def includes(self, topic: str) -> bool:
        return re.search(self.spark_pattern(), topic) is not None

    def target(self, topic: str) -> str:
        return self.renamed.get(topic, f"{self.prefix}{topic}")

    def spark_pattern(self) -> str:
        """Return the pattern for Spark's subscribePattern, which searches; Java and Python read it alike."""
        excluded = "|".join(filter(None, [INTERNAL, self.blacklist]))
        return f"^(?!(?:{excluded})$)(?:{self.pattern})$"
