"""Which topics are mirrored, and what they are called at the target."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

INTERNAL = "__.*"


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics that match `pattern` and not `blacklist`; a name is mapped, or else prefixed.

    A topic with the prefix behind another one is a copy that comes back, as `B.A.orders` to the mirror with the prefix
    `A.`. It is left out: otherwise two mirrors in opposite directions would make topics with longer and longer names.
    """

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
        copies = f".+(?<![A-Za-z0-9]){re.escape(self.prefix)}.*" if self.prefix else None
        excluded = "|".join(filter(None, [INTERNAL, copies, self.blacklist]))
        return f"^(?!(?:{excluded})$)(?:{self.pattern})$"
