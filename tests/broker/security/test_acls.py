"""The decision of ACLs: tables, and a comparison with a decision that scans all ACLs."""

import random
from itertools import pairwise

import pytest

from broker.security.acls import (
    OPERATIONS,
    Acl,
    AclIndex,
    Filter,
    InvalidAclError,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
    problem_of_storing,
)

ALICE, HOST = "User:alice", "10.0.0.1"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def index(*acls: tuple[str, Acl]) -> AclIndex:
    """Return an index; a name that ends in `...` is a prefix."""
    by_pattern: dict[Pattern, list[Acl]] = {}
    for name, acl in acls:
        prefix = name.removesuffix("...")
        pattern_type = PatternType.LITERAL if prefix == name else PatternType.PREFIXED
        by_pattern.setdefault(Pattern(TOPIC, prefix, pattern_type), []).append(acl)
    built = AclIndex()
    for pattern, them in by_pattern.items():
        built.put(pattern, them)
    return built


def allow(operation: Operation = READ, principal: str = ALICE, host: str = "*") -> Acl:
    return Acl(principal, host, operation, ALLOW)


def deny(operation: Operation = READ, principal: str = ALICE, host: str = "*") -> Acl:
    return Acl(principal, host, operation, DENY)


@pytest.mark.parametrize(
    ("acls", "decision"),
    [
        ([], None),
        ([("other", allow())], None),
        ([("t", allow())], True),
        ([("t", allow(WRITE))], False),
        ([("t", allow(ALL))], True),
        ([("t", allow(principal="User:*"))], True),
        ([("t", allow(principal="User:bob"))], False),
        ([("t", allow(host=HOST))], True),
        ([("t", allow(host="10.0.0.2"))], False),
        ([("*", allow())], True),
        ([("t...", allow())], True),
        ([("topics...", allow())], None),
        ([("t", allow()), ("t", deny())], False),
        ([("t", allow()), ("*", deny())], False),
        ([("t", allow()), ("t...", deny())], False),
        ([("t", allow()), ("t", deny(ALL))], False),
        ([("t", allow()), ("t", deny(host="10.0.0.2"))], True),
        ([("t", allow()), ("t", deny(host="10.0.0.1"))], False),
        ([("t", allow()), ("t", deny(principal="User:*"))], False),
        ([("t", allow()), ("t", deny(WRITE))], True),
        ([("t...", allow()), ("t", deny(WRITE))], True),
    ],
)
def test_decision_for_reading_the_topic_t(acls: list[tuple[str, Acl]], decision: bool | None) -> None:
    assert index(*acls).decide(ALICE, HOST, READ, TOPIC, "t") is decision


def test_everyone_includes_principals_of_other_types() -> None:
    engineers = "Group:eng"
    acls = index(("*", allow(ALL, engineers)), ("salaries", deny(ALL, "User:*")), ("open", allow(principal="User:*")))
    assert acls.decide(engineers, HOST, READ, TOPIC, "orders")
    assert acls.decide(engineers, HOST, READ, TOPIC, "salaries") is False
    assert acls.decide("Group:other", HOST, READ, TOPIC, "open")
    assert not index(("*", deny(ALL, "User:*")), ("t", allow(ALL, engineers))).allows_any(engineers, HOST, READ, TOPIC)


def test_only_the_type_user_has_a_wildcard() -> None:
    assert index(("t", allow(principal="Group:*"))).decide("Group:eng", HOST, READ, TOPIC, "t") is False


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_some_operations_imply_describe_if_they_are_allowed(operation: Operation) -> None:
    assert index(("t", allow(operation))).decide(ALICE, HOST, DESCRIBE, TOPIC, "t")
    assert index(("t", deny(operation)), ("t", allow(DESCRIBE))).decide(ALICE, HOST, DESCRIBE, TOPIC, "t")


def test_alter_configs_implies_describe_configs() -> None:
    acls = index(("t", allow(Operation.ALTER_CONFIGS)))
    assert acls.decide(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert not acls.decide(ALICE, HOST, DESCRIBE, TOPIC, "t")


def test_removed_acls_have_no_effect() -> None:
    acls = index(("t", allow()), ("t...", allow()))
    acls.put(Pattern(TOPIC, "t"), [])
    acls.put(Pattern(TOPIC, "t", PatternType.PREFIXED), [])
    assert acls.decide(ALICE, HOST, READ, TOPIC, "t") is None
    assert list(acls) == []


@pytest.mark.parametrize(
    ("acls", "allows"),
    [
        ([], False),
        ([("t", allow(WRITE))], True),
        ([("t...", allow(ALL))], True),
        ([("t", allow(WRITE)), ("t", deny(WRITE))], False),
        ([("t", allow(WRITE)), ("*", deny(WRITE))], False),
        ([("t", allow(WRITE)), ("t...", deny(WRITE))], False),
        ([("t1...", allow(WRITE)), ("t...", deny(WRITE))], False),
        ([("t...", allow(WRITE)), ("t1...", deny(WRITE))], True),
        ([("*", allow(WRITE)), ("t...", deny(WRITE))], True),
        ([("t...", allow(WRITE)), ("t", deny(WRITE))], True),
        ([("t", allow(WRITE)), ("u", deny(WRITE))], True),
        ([("t", allow(READ))], False),
        ([("t", allow(WRITE, host="10.0.0.2"))], False),
    ],
)
def test_writing_to_some_topic_is_allowed_unless_a_deny_covers_it(acls: list[tuple[str, Acl]], allows: bool) -> None:
    assert index(*acls).allows_any(ALICE, HOST, WRITE, TOPIC) is allows


def naive_decision(
    acls: list[tuple[Pattern, Acl]], principal: str, host: str, operation: Operation, name: str
) -> bool | None:
    about = [
        acl
        for pattern, acl in acls
        if (pattern.pattern_type is PatternType.LITERAL and pattern.name in (name, "*"))
        or (pattern.pattern_type is PatternType.PREFIXED and name.startswith(pattern.name))
    ]
    if not about:
        return None
    mine = [acl for acl in about if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    if any(acl.permission is DENY and acl.operation in (operation, ALL) for acl in mine):
        return False
    granted = {operation, ALL}
    if operation is DESCRIBE:
        granted |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        granted.add(Operation.ALTER_CONFIGS)
    return any(acl.permission is ALLOW and acl.operation in granted for acl in mine)


@pytest.mark.parametrize("seed", range(20))
def test_index_decides_as_a_scan_of_all_acls(seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "ab", "abc", "b", "ba", "*"]
    principals, hosts = [ALICE, "User:bob", "User:*"], ["*", HOST, "::1"]
    operations = [*OPERATIONS[TOPIC], ALL]
    stored: dict[Pattern, set[Acl]] = {}
    built = AclIndex()
    for _ in range(60):
        pattern = Pattern(TOPIC, rng.choice(names), rng.choice([PatternType.LITERAL, PatternType.PREFIXED]))
        acls = stored.setdefault(pattern, set())
        if acls and rng.random() < 0.4:
            acls.discard(rng.choice(sorted(acls)))
        else:
            acls.add(Acl(rng.choice(principals), rng.choice(hosts), rng.choice(operations), rng.choice([ALLOW, DENY])))
        built.put(pattern, acls)
        flat = [(pattern, acl) for pattern, them in stored.items() for acl in them]
        question = rng.choice([ALICE, "User:bob"]), rng.choice([HOST, "::1"]), rng.choice(list(OPERATIONS[TOPIC]))
        name = rng.choice(["a", "ab", "abcd", "b", "x", "*"])
        assert built.decide(*question, TOPIC, name) is naive_decision(flat, *question, name)


@pytest.mark.parametrize(
    ("pattern", "acl", "text"),
    [
        (Pattern(ResourceType.UNKNOWN, "t"), allow(), "Failed to create ACL"),
        (Pattern(TOPIC, "t", PatternType.UNKNOWN), allow(), "Failed to create ACL"),
        (Pattern(TOPIC, "t"), allow(Operation.UNKNOWN), "Failed to create ACL"),
        (Pattern(TOPIC, "t"), allow()._replace(permission=Permission.UNKNOWN), "Failed to create ACL"),
        (Pattern(TOPIC, "a/b"), allow(), "Failed to create ACL"),
        (Pattern(TOPIC, ""), allow(), "Invalid empty resource name"),
        (
            Pattern(ResourceType.CLUSTER, "mine"),
            allow(Operation.CREATE),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
    ],
)
def test_impossible_acl_is_rejected_in_the_words_of_kafka(pattern: Pattern, acl: Acl, text: str) -> None:
    with pytest.raises(InvalidAclError, match=f"^{text}$"):
        check_acl(pattern, acl)


@pytest.mark.parametrize(
    ("pattern", "acl", "text"),
    [
        (Pattern(TOPIC, ".."), allow(), "name of a node"),
        (Pattern(GROUP, "g\0"), allow(), "name of a node"),
        (Pattern(GROUP, "g\x9f"), allow(), "name of a node"),
        (Pattern(TOPIC, "t"), allow(principal="alice"), "found 'alice'"),
    ],
)
def test_acl_that_cannot_be_stored_is_named(pattern: Pattern, acl: Acl, text: str) -> None:
    check_acl(pattern, acl)
    assert text in (problem_of_storing(pattern, [allow(), acl]) or "")


@pytest.mark.parametrize(
    ("stored", "host"), [("0:0:0:0:0:0:0:1", "::1"), ("2001:DB8::5", "2001:db8::5"), ("10.0.0.1", "10.0.0.1")]
)
def test_an_address_is_the_same_however_it_is_written(stored: str, host: str) -> None:
    built = index(("t", allow()), ("t", deny(host=stored)))
    assert built.decide(ALICE, host, READ, TOPIC, "t") is False
    assert dict(built)[Pattern(TOPIC, "t")] == {allow(), deny(host=stored)}, "it is shown as it was created"


def test_thousands_of_prefixes_are_put_in_the_time_of_their_number() -> None:
    built = AclIndex()
    names = [f"{'x' * (number % 90)}{number:05}" for number in range(3_000)]
    for name in names:
        built.put(Pattern(TOPIC, name, PatternType.PREFIXED), [allow()])
    assert all(built.decide(ALICE, HOST, READ, TOPIC, f"{name}-1") for name in names)
    for name in names[1:]:
        built.put(Pattern(TOPIC, name, PatternType.PREFIXED), [])
    assert built.decide(ALICE, HOST, READ, TOPIC, f"{names[0]}-1")
    assert [built.decide(ALICE, HOST, READ, TOPIC, f"{name}-1") for name in names[1:4]] == [None] * 3


def test_possible_acls_are_accepted() -> None:
    check_acl(Pattern(TOPIC, "*"), allow(ALL, principal="User:*", host="::1"))
    check_acl(Pattern(ResourceType.CLUSTER, "kafka-cluster"), deny(Operation.CLUSTER_ACTION))
    check_acl(Pattern(ResourceType.USER, "User:bob"), allow(Operation.CREATE_TOKENS))
    check_acl(Pattern(TOPIC, "t"), allow(Operation.CREATE_TOKENS, principal="User:", host=""))
    check_acl(Pattern(GROUP, "g"), allow(WRITE, host="localhost"))


@pytest.mark.parametrize(
    ("pattern_type", "name", "found"),
    [
        (PatternType.ANY, None, {"t LITERAL", "t PREFIXED", "* LITERAL", "te PREFIXED"}),
        (PatternType.ANY, "t", {"t LITERAL", "t PREFIXED"}),
        (PatternType.LITERAL, "t", {"t LITERAL"}),
        (PatternType.LITERAL, "*", {"* LITERAL"}),
        (PatternType.PREFIXED, "t", {"t PREFIXED"}),
        (PatternType.PREFIXED, None, {"t PREFIXED", "te PREFIXED"}),
        (PatternType.MATCH, "t", {"t LITERAL", "t PREFIXED", "* LITERAL"}),
        (PatternType.MATCH, "team", {"t PREFIXED", "* LITERAL", "te PREFIXED"}),
    ],
)
def test_filter_selects_patterns(pattern_type: PatternType, name: str | None, found: set[str]) -> None:
    wanted = Filter(TOPIC, name, pattern_type, None, None, Operation.ANY, Permission.ANY)
    built = index(("t", allow()), ("t...", allow()), ("*", allow()), ("te...", allow()))
    assert {
        f"{pattern.name} {pattern.pattern_type.name}"
        for pattern, acls in built
        if all(wanted.matches(pattern, acl) for acl in acls)
    } == found


def test_titles_are_those_of_the_store() -> None:
    assert [one.title for one in (ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE_CONFIGS, DENY)] == [
        "TransactionalId",
        "DescribeConfigs",
        "Deny",
    ]
    assert all(a < b for a, b in pairwise(Operation))
