"""A group of the consumer protocol (KIP-848) described like a classic one, for those who show both alike.

Owns: this translation. Must not know who asks.
"""

from protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolAssignment, TopicPartitions, assignment_bytes
from protocol.messages import consumer_group_describe
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember

ASSIGNMENT_VERSION = 0


def like_classic(group: consumer_group_describe.DescribedGroup) -> DescribedGroup:
    """Return the same group, with the assignor in the place of the protocol."""
    return DescribedGroup(
        error_code=group.error_code,
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol_data=group.assignor_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"",
                member_assignment=_assignment(member.assignment),
            )
            for member in group.members
        ],
    )


def _assignment(assignment: consumer_group_describe.Assignment) -> bytes:
    assigned = [
        TopicPartitions(topic=each.topic_name, partitions=list(each.partitions)) for each in assignment.topic_partitions
    ]
    return assignment_bytes(
        ASSIGNMENT_VERSION, ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    )
