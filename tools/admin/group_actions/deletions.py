"""Deletes groups (DeleteGroups) and prints the results, for kafka-consumer-groups and kafka-share-groups.

Must not know options, or which groups exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tools.client.admin_client import AdminClient


def delete_group(admin: AdminClient, group: str) -> KafkaError | None:
    """Delete a group; return the error of its coordinator. Raises as `AdminClient.call_coordinator` does."""
    response = admin.call_coordinator(
        group,
        DeleteGroupsRequest(groups_names=[group]),
        DeleteGroupsResponse,
        lambda response: [result.error_code for result in response.results],
    )
    code = response.results[0].error_code
    return KafkaError(ErrorCode(code)) if code else None


def print_deletions(kind: str, groups: Sequence[str], failures: Mapping[str, str]) -> bool:
    """Print which groups were deleted, and the reasons of failures by group; return whether all were deleted.

    `kind` is `consumer` or `share`.
    """
    deleted = _quoted(group for group in groups if group not in failures)
    if not failures:
        print(f"Deletion of requested {kind} groups ({deleted}) was successful.")
        return True
    print(f"\nError: Deletion of some {kind} groups failed:")
    for group, reason in failures.items():
        print(f"* Group '{group}' could not be deleted due to: {reason}")
    if deleted:
        print(f"\nThese {kind} groups were deleted successfully: {deleted}")
    return False


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
