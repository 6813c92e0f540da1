"""kafka-acls: adds, removes and lists ACLs."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.security.acls import CLUSTER_NAME, OPERATIONS, WILDCARD, Operation, PatternType, Permission, ResourceType
from protocol.errors import KafkaError
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tools.base.command_line import CommandLine, UsageError, run_tool
from tools.base.java_names import exception_text
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client
from tools.client.client_settings import parse_assignments
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_brokers_of_zookeeper

Acls = list[tuple[str, str, Operation, Permission]]
"""Principal, host, operation and permission."""

ZOOKEEPER_CONNECT = "zookeeper.connect"
_ANY_ACL = (None, None, Operation.ANY, Permission.ANY)
_RESOURCE_OPTIONS: Mapping[str, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}


class Resource(NamedTuple):
    """A pattern, or a filter for patterns; `name` None matches every name."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-acls", "This tool helps to manage acls on kafka.")
    add_admin_options(line)
    add_zookeeper_option(line)
    line.add_option("--authorizer", value="class", help_text="Accepted; the brokers' authorizer keeps the ACLs.")
    line.add_option(
        "--authorizer-properties",
        value="key=value",
        repeatable=True,
        help_text=f"DEPRECATED: {ZOOKEEPER_CONNECT}=host:port is the same as --zookeeper host:port.",
    )
    line.add_flag("--add", "Add ACLs.")
    line.add_flag("--remove", "Remove ACLs.")
    line.add_flag("--list", "List ACLs of the given resources, or all of them.")
    for name, noun in (
        ("--topic", "topic"),
        ("--group", "group"),
        ("--transactional-id", "transactional id"),
        ("--delegation-token", "delegation token"),
        ("--user-principal", "user principal"),
    ):
        line.add_option(name, value=noun, repeatable=True, help_text=f"The {noun} of the ACLs; * names all of them.")
    line.add_flag("--cluster", "ACLs of the cluster.")
    line.add_flag("--idempotent", "Also allow idempotent writes, with --producer.")
    line.add_option(
        "--resource-pattern-type",
        value="ANY|MATCH|LITERAL|PREFIXED",
        default="literal",
        help_text="The type of the pattern; any and match are for --list and --remove.",
    )
    for name, words in (
        ("--allow-principal", "Principal to allow, as Type:name."),
        ("--deny-principal", "Principal to deny, as Type:name."),
        ("--principal", "List only ACLs of this principal."),
        ("--allow-host", "Address from which allowed principals may connect; default *."),
        ("--deny-host", "Address from which denied principals are denied; default *."),
        ("--operation", "Operation of the ACLs; default All."),
    ):
        line.add_option(name, value=name.lstrip("-"), repeatable=True, help_text=words)
    line.add_flag("--producer", "All ACLs that a producer needs.")
    line.add_flag("--consumer", "All ACLs that a consumer needs.")
    line.add_flag("--force", "Do not ask before removing.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    connect = parse_assignments(options.authorizer_properties).get(ZOOKEEPER_CONNECT)
    if options.bootstrap_server is None and options.zookeeper is None:
        options.zookeeper = connect
    use_brokers_of_zookeeper(line, options)
    changes = _checked(line, options)
    try:
        with admin_client(options) as admin:
            if options.add:
                _add(admin, changes)
            elif options.remove:
                _remove(admin, changes, is_forced=options.force)
            else:
                _list(admin, options)
    except (KafkaError, CallTimedOut) as error:
        reason = exception_text(error) if isinstance(error, KafkaError) else str(error)
        print(f"Error while executing ACL command: {reason}")
        return 1
    return 0


def _checked(line: CommandLine, options: argparse.Namespace) -> dict[Resource, Acls]:
    """Return the ACLs to add or remove, by resource. Raises UsageError."""
    line.require(options, "--bootstrap-server")
    if sum((options.add, options.remove, options.list)) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove.")
    pattern_type = _pattern_type(options)
    if options.list:
        return {}
    if options.add and pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError(f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls.")
    if options.producer and not options.topic:
        raise UsageError("With --producer you must specify a --topic")
    if options.consumer and (not options.topic or not options.group or options.cluster or options.transactional_id):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )
    if options.idempotent and not options.producer:
        raise UsageError("The --idempotent option is only available if --producer is set")
    for principal in (*options.allow_principal, *options.deny_principal, *options.principal):
        if not all(principal.strip().partition(":")):
            raise UsageError(f"expected a string in format principalType:principalName but got {principal}")
    if options.add and not options.allow_principal and not options.deny_principal:
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    changes = _convenient(options) if options.producer or options.consumer else _plain(options)
    if not changes:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    return changes


def _pattern_type(options: argparse.Namespace) -> PatternType:
    name = options.resource_pattern_type.upper()
    if name not in ("ANY", "MATCH", "LITERAL", "PREFIXED"):
        raise UsageError(f"Cannot parse argument '{options.resource_pattern_type}' of option resource-pattern-type")
    return PatternType[name]


def _resources(options: argparse.Namespace, *kinds: ResourceType) -> Iterator[Resource]:
    pattern_type = _pattern_type(options)
    for option, resource_type in _RESOURCE_OPTIONS.items():
        if not kinds or resource_type in kinds:
            for name in getattr(options, option):
                yield Resource(resource_type, name.strip(), pattern_type)
    if options.cluster and not kinds:
        yield Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def _convenient(options: argparse.Namespace) -> dict[Resource, Acls]:
    changes: dict[Resource, Acls] = {}

    def grant(resource: Resource, *operations: Operation) -> None:
        changes.setdefault(resource, []).extend(
            acl for acl in _acls(options, operations) if acl not in changes[resource]
        )

    if options.producer:
        for topic in _resources(options, ResourceType.TOPIC):
            grant(topic, Operation.CREATE, Operation.WRITE, Operation.DESCRIBE)
        for transactional_id in _resources(options, ResourceType.TRANSACTIONAL_ID):
            grant(transactional_id, Operation.WRITE, Operation.DESCRIBE)
        if options.idempotent:
            cluster = Resource(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
            grant(cluster, Operation.IDEMPOTENT_WRITE)
    if options.consumer:
        for topic in _resources(options, ResourceType.TOPIC):
            grant(topic, Operation.READ, Operation.DESCRIBE)
        for group in _resources(options, ResourceType.GROUP):
            grant(group, Operation.READ)
    return changes


def _plain(options: argparse.Namespace) -> dict[Resource, Acls]:
    names = [name.strip().replace("_", "").lower() for name in options.operation] or ["all"]
    by_name = {operation.title.lower(): operation for operation in Operation if operation > Operation.ANY}
    changes = {}
    for resource in _resources(options):
        supported = {Operation.ALL, *OPERATIONS[resource.resource_type]}
        operations = [by_name.get(name) for name in names]
        if not supported.issuperset(operations):
            known = ", ".join(operation.title for operation in sorted(supported))
            raise UsageError(f"ResourceType {resource.resource_type.name} only supports operations {known}")
        changes[resource] = _acls(options, [operation for operation in operations if operation is not None])
    return changes


def _acls(options: argparse.Namespace, operations: Sequence[Operation]) -> Acls:
    found: Acls = []
    for principals, hosts, permission in (
        (options.allow_principal, options.allow_host, Permission.ALLOW),
        (options.deny_principal, options.deny_host, Permission.DENY),
    ):
        for principal in principals:
            for host in hosts or [WILDCARD]:
                found += [(principal.strip(), host.strip(), operation, permission) for operation in operations]
    return found


def _lines(acls: Acls) -> str:
    return "\n".join(
        f"\t(principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"
        for principal, host, operation, permission in acls
    )


def _add(admin: AdminClient, changes: Mapping[Resource, Acls]) -> None:
    for resource, acls in changes.items():
        print(f"Adding ACLs for resource `{resource}`: \n {_lines(acls)} \n")
        creations = [
            AclCreation(
                resource_type=resource.resource_type,
                resource_name=resource.name or "",
                resource_pattern_type=resource.pattern_type,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for principal, host, operation, permission in acls
        ]
        response = admin.call(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in response.results:
            raise_for(result.error_code, result.error_message)


def _remove(admin: AdminClient, changes: Mapping[Resource, Acls], *, is_forced: bool) -> None:
    for resource, acls in changes.items():
        what = f"remove ACLs: \n {_lines(acls)} \n from" if acls else "delete all ACLs for"
        if not is_forced and not _is_confirmed(f"Are you sure you want to {what} resource filter `{resource}`?"):
            continue
        wanted: Sequence[tuple[str | None, str | None, Operation, Permission]] = acls if acls else [_ANY_ACL]
        filters = [
            DeleteAclsFilter(
                resource_type_filter=resource.resource_type,
                resource_name_filter=resource.name,
                pattern_type_filter=resource.pattern_type,
                principal_filter=principal,
                host_filter=host,
                operation=operation,
                permission_type=permission,
            )
            for principal, host, operation, permission in wanted
        ]
        response = admin.call(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        for result in response.filter_results:
            raise_for(result.error_code, result.error_message)


def _is_confirmed(question: str) -> bool:
    print(f"{question} (y/n)", flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    wanted = list(_resources(options)) or [Resource(ResourceType.ANY, None, PatternType.ANY)]
    for principal in options.principal or [None]:
        if principal is not None:
            print(f"ACLs for principal `{principal}`")
        for resource, acls in _found(admin, wanted, principal).items():
            print(f"Current ACLs for resource `{resource}`: \n {_lines(acls)} \n")


def _found(admin: AdminClient, wanted: Sequence[Resource], principal: str | None) -> dict[Resource, Acls]:
    """Return the ACLs of the wanted resources, of one principal or of all."""
    found: dict[Resource, Acls] = {}
    for resource in wanted:
        request = DescribeAclsRequest(
            resource_type_filter=resource.resource_type,
            resource_name_filter=resource.name,
            pattern_type_filter=resource.pattern_type,
            principal_filter=principal,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        response = admin.call(request, DescribeAclsResponse)
        raise_for(response.error_code, response.error_message)
        for each in response.resources:
            key = Resource(ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type))
            acls = found.setdefault(key, [])
            for acl in each.acls:
                one = (acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
                if one not in acls:  # two of the filters may match it
                    acls.append(one)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
