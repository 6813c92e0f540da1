"""The four elections against their definitions, over every small case."""

from collections.abc import Iterator
from itertools import chain, combinations, permutations

import pytest

from controller.machine.election import (
    Choice,
    leader_when_offline,
    leader_when_reassigned,
    leader_when_shutting_down,
    preferred_leader,
)

BROKERS = (1, 2, 3)

Subset = tuple[int, ...]


def _subsets() -> list[Subset]:
    return list(chain.from_iterable(combinations(BROKERS, size) for size in range(len(BROKERS) + 1)))


def _cases() -> Iterator[tuple[Subset, Subset, Subset]]:
    """(assignment, isr, live): every order of every assignment, with every isr and every set of live brokers."""
    for assigned in _subsets():
        for assignment in permutations(assigned):
            for isr in _subsets():
                for live in _subsets():
                    yield assignment, isr, live


def test_offline_election_elects_the_first_qualified_replica() -> None:
    for assignment, isr, live in _cases():
        clean = [it for it in assignment if it in isr and it in live]
        unclean = [it for it in assignment if it in live]
        only_clean = leader_when_offline(assignment, isr, live, unclean_allowed=False)
        any_live = leader_when_offline(assignment, isr, live, unclean_allowed=True)
        if clean:
            assert only_clean == any_live == Choice(clean[0], is_unclean=False)
        else:
            assert only_clean is None
            assert any_live == (Choice(unclean[0], is_unclean=True) if unclean else None)


def test_reassignment_elects_the_first_qualified_target() -> None:
    for target, isr, live in _cases():
        qualified = [it for it in target if it in isr and it in live]
        assert leader_when_reassigned(target, isr, live) == (qualified[0] if qualified else None)


def test_preferred_leader_is_the_head_of_the_assignment_or_none() -> None:
    for assignment, isr, live in _cases():
        expected = assignment[0] if assignment and assignment[0] in set(isr) & set(live) else None
        assert preferred_leader(assignment, isr, live) == expected


def test_controlled_shutdown_skips_brokers_that_shut_down() -> None:
    for assignment, isr, live in _cases():
        for shutting_down in _subsets():
            qualified = [it for it in assignment if it in isr and it in live and it not in shutting_down]
            expected = qualified[0] if qualified else None
            assert leader_when_shutting_down(assignment, isr, live, shutting_down) == expected


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean_allowed", "expected"),
    [
        ((1, 2, 0), (1, 2, 0), (2, 0), False, Choice(2, False)),
        ((1, 2), (2,), (1,), False, None),
        ((1, 2), (2,), (1,), True, Choice(1, True)),
        ((1, 2), (2,), (), True, None),
        ((), (2,), (2,), True, None),
    ],
)
def test_offline_election_matches_the_examples(
    assignment: Subset, isr: Subset, live: Subset, unclean_allowed: bool, expected: Choice | None
) -> None:
    assert leader_when_offline(assignment, isr, live, unclean_allowed=unclean_allowed) == expected
