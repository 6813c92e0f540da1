"""`sasl.kerberos.principal.to.local.rules`: from the name of a Kerberos principal to the name of a user.

A principal is `primary@REALM` or `primary/instance@REALM`. The first rule that applies wins:

    DEFAULT                                          the primary, if the realm is the default realm
    RULE:[n:template](pattern)s/from/to/g/L          if the principal has n components before the realm

In the template `$0` is the realm, `$1` the primary and `$2` the instance. The rule applies if the optional pattern
matches the whole expanded template. `s/from/to/` replaces the first match in it, with `g` each match; `/L` and `/U`
change the case. Owns the syntax and the decision. Must not know Kerberos libraries.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from config.principal_rules import NoRuleApplies, expanded

_PRINCIPAL = re.compile(r"([^/@]+)(?:/([^/@]+))?@([^/@]+)")
_RULE = re.compile(
    r"DEFAULT|RULE:\[(?P<components>\d+):(?P<template>[^\]]*)\](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<source>[^/]*)/(?P<target>[^/]*)/(?P<repeats>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$(\d+)")
_NOT_SIMPLE = re.compile(r"[/@]")
_COMPONENTS_MAX = 2


class KerberosRule(NamedTuple):
    """One rule. `components` 0: DEFAULT."""

    components: int
    template: str = ""
    pattern: re.Pattern[str] | None = None
    source: re.Pattern[str] | None = None
    target: str = ""
    repeats: bool = False
    case: str = ""

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """Return the user's name, or None if the rule does not apply. `parts` are realm, primary and instance."""
        if not self.components:
            return parts[1] if parts[0] == default_realm else None
        if self.components != len(parts) - 1:
            return None
        name = _PARAMETER.sub(lambda parameter: parts[int(parameter[1])], self.template)
        if self.pattern is not None and self.pattern.fullmatch(name) is None:
            return None
        if self.source is not None:
            name = self.source.sub(lambda match: expanded(match, self.target), name, count=0 if self.repeats else 1)
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


def parse_kerberos_rules(texts: Sequence[str]) -> list[KerberosRule]:
    """Return the rules. Raises ValueError."""
    return [_rule(text.strip()) for text in texts] or [KerberosRule(0)]


def local_name(rules: Sequence[KerberosRule], principal: str, default_realm: str) -> str:
    """Return the user's name of a principal. Raises NoRuleApplies."""
    match = _PRINCIPAL.fullmatch(principal)
    if match is None:
        raise NoRuleApplies(f"{principal} is not of the form primary@REALM or primary/instance@REALM")
    primary, instance, realm = match.groups()
    parts = [realm, primary] if instance is None else [realm, primary, instance]
    for rule in rules:
        name = rule.apply(parts, default_realm)
        if not name:
            continue
        if _NOT_SIMPLE.search(name):
            raise NoRuleApplies(f"the rules make {name} of {principal}, expected a name without / and @")
        return name
    raise NoRuleApplies(f"No rules apply to {principal}")


def _rule(text: str) -> KerberosRule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"Invalid rule: `{text}`, expected DEFAULT or RULE:[n:string](regexp)s/pattern/replacement/")
    if match["components"] is None:
        return KerberosRule(0)
    components = int(match["components"])
    if not 1 <= components <= _COMPONENTS_MAX:
        raise ValueError(f"Invalid rule: `{text}`, expected 1 or {_COMPONENTS_MAX} components")
    if any(int(number) > components for number in _PARAMETER.findall(match["template"])):
        raise ValueError(f"Invalid rule: `{text}`, its template names a component that the principal does not have")
    try:
        pattern, source = (
            None if match[group] is None else re.compile(match[group]) for group in ("pattern", "source")
        )
    except re.error as error:
        raise ValueError(f"Invalid rule: `{text}`: {error}") from None
    return KerberosRule(
        components,
        match["template"],
        pattern,
        source,
        match["target"] or "",
        match["repeats"] is not None,
        match["case"] or "",
    )
