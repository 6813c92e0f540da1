"""Golden scripts of the group machine: commands, and below each what it caused.

A line at the margin is a command, an indented one is output, `#` begins a comment. Clients are short names; a client
remembers the member id and generation of its last response, and the instance id and timeouts of its last request. The
id generated for the n-th join of client `a` is `a.<n>`. Commands:

    settings delay=3000 max=2           before anything else
    join a [id=new|ID] [instance=I] [protocols=range:t,u|sticky:t] [session=MS] [rebalance=MS] [needs-id] [no-skip]
    sync a [a=x b=y] [generation=N]     assignments by client, for a leader
    heartbeat a [generation=N]
    commit a|nobody [generation=N]
    leave a | leave instance=I
    tick MS                             the group is woken whenever it asks to be
    hold                                from here on the log stores only on:
    stored [ERROR]
    reload                              the group as its last stored record says, as after a restart
    resign
"""

from __future__ import annotations

from broker.groups.machine.events import JoinResult, MemberProtocol, RespondToJoin, StoreGroup, SyncResult
from broker.groups.machine.group import Group
from broker.groups.machine.records import GroupMetadataValue, group_value, read_group
from protocol.errors import ErrorCode
from tests.broker.groups.support import Harness, subscription


class Client:
    """What one client remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation_id = -1
        self.instance_id: str | None = None
        self.session_ms = 10_000
        self.rebalance_ms = 60_000
        self.join_count = 0
        self.sync_count = 0


class Script:
    """Runs one script and writes down what happens."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.clients: dict[str, Client] = {}
        self.elapsed_ms = 0
        self.output: list[str] = []
        self._shown_effects = 0
        self._shown_state = self._state()

    def run(self, text: str) -> str:
        """The script with its output as it is now."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(" "):
                continue
            lines.append(line)
            if line and not line.startswith("#"):
                verb, *words = line.split()
                self.output = []
                getattr(self, f"do_{verb}")(*words)
                self._show_changes()
                lines += [f"  {each}" for each in self.output]
        return "\n".join(lines) + "\n"

    def do_settings(self, *words: str) -> None:
        _, options = _split(words)
        self.harness = Harness(initial_delay_ms=int(options.get("delay", "0")), max_size=int(options.get("max", "100")))

    def do_join(self, name: str, *words: str) -> None:
        flags, options = _split(words)
        client = self.clients.setdefault(name, Client(name))
        client.join_count += 1
        client.instance_id = options.get("instance", client.instance_id)
        client.session_ms = int(options.get("session", client.session_ms))
        client.rebalance_ms = int(options.get("rebalance", client.rebalance_ms))
        member_id = options.get("id", client.member_id)
        self.harness.join(
            name,
            ticket=f"join {name} {client.join_count}",
            member_id="" if member_id == "new" else member_id,
            instance_id=client.instance_id,
            offers=_protocols(options.get("protocols", "range:t")),
            session_ms=client.session_ms,
            rebalance_ms=client.rebalance_ms,
            requires_id="needs-id" in flags,
            skips_assignment="no-skip" not in flags,
            generated_id=f"{name}.{client.join_count}",
        )

    def do_sync(self, name: str, *words: str) -> None:
        _, options = _split(words)
        client = self.clients[name]
        generation_id = int(options.pop("generation", client.generation_id))
        assignments = {self.clients[other].member_id: text.encode() for other, text in options.items()}
        client.sync_count += 1
        self.harness.sync(
            client.member_id,
            assignments,
            ticket=f"sync {name} {client.sync_count}",
            generation_id=generation_id,
            instance_id=client.instance_id,
        )

    def do_heartbeat(self, name: str, *words: str) -> None:
        client, generation_id = self._client(name, words)
        self._say(name, self.harness.heartbeat(client.member_id, generation_id, client.instance_id).name)

    def do_commit(self, name: str, *words: str) -> None:
        if name == "nobody":
            self._say(name, self.harness.commit().name)
            return
        client, generation_id = self._client(name, words)
        self._say(name, self.harness.commit(client.member_id, generation_id, client.instance_id).name)

    def do_leave(self, name: str) -> None:
        if name.startswith("instance="):
            self._say("administrator", self.harness.leave(instance_id=name.removeprefix("instance=")).name)
            return
        client = self.clients[name]
        self._say(name, self.harness.leave(client.member_id, client.instance_id).name)

    def do_tick(self, milliseconds: str) -> None:
        self.elapsed_ms += int(milliseconds)
        self.harness.at(self.elapsed_ms)

    def do_hold(self) -> None:
        self.harness.holds_stores = True

    def do_stored(self, error: str = "NONE") -> None:
        self.harness.release(ErrorCode[error])

    def do_reload(self) -> None:
        last = read_group(group_value(self.harness.stores[-1].value))
        self.harness.group = Group.restored("g", last, self.harness.settings, self.harness.now)
        self.harness.group.resume(self.harness.now)
        self.harness.settle()

    def do_resign(self) -> None:
        self.harness.group.resign()
        self.harness.settle()

    def _client(self, name: str, words: tuple[str, ...]) -> tuple[Client, int]:
        _, options = _split(words)
        client = self.clients[name]
        return client, int(options.get("generation", client.generation_id))

    def _say(self, who: str, text: str) -> None:
        self.output.append(f"{who} <- {text}")

    def _state(self) -> str:
        group = self.harness.group
        return f"group {group.state.value} generation={group.generation_id} members=[{' '.join(group.members)}]"

    def _show_changes(self) -> None:
        for effect in self.harness.effects[self._shown_effects :]:
            if isinstance(effect, StoreGroup):
                self.output.append(_stored(effect))
                continue
            name = str(effect.ticket).split()[1]
            if isinstance(effect, RespondToJoin):
                self._show_join(self.clients[name], effect.result)
            else:
                self._show_sync(name, effect.result)
        self._shown_effects = len(self.harness.effects)
        if self._state() != self._shown_state:
            self._shown_state = self._state()
            self.output.append(self._shown_state)

    def _show_join(self, client: Client, result: JoinResult) -> None:
        words = [f"Join {result.error.name}"]
        if result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = result.member_id
            words.append(f"id={result.member_id}")
        if result.error is ErrorCode.NONE:
            client.generation_id = result.generation_id
            words.append(f"generation={result.generation_id} {result.protocol_name} leader={result.leader_id}")
            if result.members:
                words.append(f"members=[{' '.join(each.member_id for each in result.members)}]")
            if result.skip_assignment:
                words.append("skip-assignment")
        self._say(client.name, " ".join(words))

    def _show_sync(self, name: str, result: SyncResult) -> None:
        words = ["Sync", result.error.name]
        if result.error is ErrorCode.NONE:
            words.append(f"assignment={result.assignment.decode() or '(empty)'}")
        self._say(name, " ".join(words))


def _split(words: tuple[str, ...]) -> tuple[set[str], dict[str, str]]:
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return {word for word in words if "=" not in word}, options


def _protocols(text: str) -> tuple[MemberProtocol, ...]:
    found = []
    for each in text.split("|"):
        name, _, topics = each.partition(":")
        found.append(MemberProtocol(name, subscription(*filter(None, topics.split(",")))))
    return tuple(found)


def _stored(effect: StoreGroup) -> str:
    value: GroupMetadataValue = effect.value
    members = " ".join(f"{each.member_id}:{each.assignment.decode() or '-'}" for each in value.members)
    return f"store generation={value.generation_id} {value.protocol_name} leader={value.leader_id} [{members}]"
