"""One partition on this broker: its leader, its in-sync replicas, and how far it is committed.

Owns: the leadership state sent by the controller, the advance of the high watermark, and the change of the ISR that is
in flight. Must not know: requests, waiting operations, clocks or other partitions. Its log is the only thing that it
touches; everything else is an effect that it returns, and that the manager puts into effect.

Events, each of which depends on the state of the partition and the time alone:

============================  ==========================================================================
leader began                  followers' positions are unknown; the epoch begins at the end of the log
same leader, next epoch       the ISR and the replicas change; positions and waiting producers stay
same leader, later epoch      the same, but positions are unknown: another broker may have led in between
follower began                appends are rejected, operations that wait for the leader fail
replica stopped               as follower, without a leader
follower fetched              the follower has every record below its fetch offset; it may join the ISR
appended                      the high watermark advances if that is all the ISR needs
AlterPartition response        the change of the ISR is committed, dropped, repeated or left to the controller
fetched from the leader       records are appended as they are; high watermark and log start follow the leader's
time passed                   followers that lag for too long are to leave the ISR; if one of them was about to join,
                              commits no longer wait for it
============================  ==========================================================================

The leader epoch only rises, also over a stop, and an epoch that does not rise changes nothing. The high watermark never
goes back unless the log is truncated. Nothing is appended unless this broker leads. At most one change of the ISR is in
flight, and until the controller has responded the larger set counts (`broker.replica.machine.isr`). The ISR may hold a
replica that is no longer assigned: a reassignment takes it out of the assignment first.

Invariants, which `check` tests in addition to those of the log:
* The leader epoch is that of the leadership.
* A leader is the replica that the leadership names.
* A leader leads since an epoch that is not above the present one; another replica leads since none.
* A leader knows the progress of each other replica that is assigned or in sync; another replica knows none.
* Alone is a leader without such replicas, and only that.
* Only a leader has a change of the ISR in flight.
* The change of the ISR that is in flight starts from the present ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from uuid import UUID

from base.dataclass import dataclass
from broker.replica.machine.isr import (
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_OFFSET,
    FollowerProgress,
    IsrChange,
    committed_offset,
    low_watermark,
    may_join,
    out_of_sync,
)
from broker.replica.topic_metrics import TopicMetrics
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage.log.log import Log
from storage.log.log_appends import AppendResult
from storage.segments.leader_epochs import EpochEnd

NO_LEADER = -1
NO_EPOCH = -1
HIGH_WATERMARK = -1


class FetchIsolation(Enum):
    """How far a reader may read."""

    LOG_END = auto()
    """For followers, and for tools that read any replica."""
    HIGH_WATERMARK = auto()
    LAST_STABLE_OFFSET = auto()
    """For consumers with read_committed."""


class Effect(Enum):
    """What an event has changed, for the operations that wait for it."""

    HIGH_WATERMARK_ADVANCED = auto()
    LOG_START_REPORTED = auto()
    """A follower has another log start offset than before."""
    ISR_COMMITTED = auto()
    """The controller has applied the change of the ISR."""
    ISR_REFUSED = auto()
    """The controller has not applied the change of the ISR, or says that it knows a newer state."""


Effects = tuple[Effect | IsrChange, ...]
"""An `IsrChange` is to be requested from the controller."""

RETURNS_TO_COMMITTED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""With these codes the controller says that the partition epoch is right and that nothing was or will be applied."""
WAITS_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    }
)
"""With these codes the controller has another state than this leader, and sends it in a LeaderAndIsr request."""


@dataclass(frozen=True, slots=True)
class ReplicaRules:
    """What all partitions of a broker share."""

    lag_ms_max: int = 30_000
    """`replica.lag.time.max.ms`."""
    is_alive: Callable[[int], bool] = lambda replica: True
    """Returns whether a broker is alive, according to the metadata."""


@dataclass(frozen=True, slots=True)
class IsrResponse:
    """The controller's response to a change of the ISR. All fields but the code are meaningful only if that is NONE."""

    code: ErrorCode
    leader_epoch: int = -1
    isr: Sequence[int] = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Leadership:
    """The state of one partition in a LeaderAndIsr request."""

    controller_epoch: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]
    is_reassigning: bool = False
    """Whether a reassignment adds or removes replicas (KIP-455)."""
    adding: Sequence[int] = ()
    """The replicas that a reassignment adds, which are in `replicas` as well."""
    names_topic_id: bool = True
    """Whether the controller tells the id of the topic, which depends on its `inter.broker.protocol.version`."""


class Partition:
    """A replica hosted here, as leader or follower."""

    __slots__ = (
        "_broker_id",
        "_followers",
        "_rules",
        "is_alone",
        "is_leader",
        "isr_change",
        "leader_epoch",
        "leadership",
        "leading_since",
        "log",
        "metrics",
        "partition",
        "topic",
        "version",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        broker_id: int,
        log: Log,
        metrics: TopicMetrics | None = None,
        rules: ReplicaRules | None = None,
    ) -> None:
        """`metrics` are the metrics of the topic; None: the partition gets its own."""
        self.metrics = TopicMetrics() if metrics is None else metrics
        self.topic = topic
        self.partition = partition
        self.log = log
        self.leadership = Leadership(NO_EPOCH, NO_LEADER, NO_EPOCH, (), NO_EPOCH, ())
        self.leader_epoch = NO_EPOCH
        self.is_leader = False
        self.version = 0
        """Rises with every change of leadership, log or configuration, and when the partition is stopped or deleted.

        What is bound to an older version is bound again (`broker.replica.bound_partition`).
        """
        self.leading_since = NO_EPOCH
        """The leader epoch in which this broker became leader; later epochs of the same leader do not change it."""
        self.is_alone = False
        """Whether this broker leads and there is no other replica: then the time plays no part."""
        self.isr_change: IsrChange | None = None
        """The change of the ISR that is in flight."""
        self._broker_id = broker_id
        self._rules = ReplicaRules() if rules is None else rules
        self._followers: dict[int, FollowerProgress] = {}

    @property
    def topic_id(self) -> UUID | None:
        """The id by which the controller knows the topic now; the log may know one from a controller before."""
        return self.log.topic_id if self.leadership.names_topic_id else None

    def learn_topic_id(self, topic_id: UUID) -> None:
        """Use the id that the controller tells now, in the present leader epoch.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.log.topic_id is None:
            self.log.assign_topic_id(topic_id)
        self.leadership = replace(self.leadership, names_topic_id=True)
        self.version += 1

    @property
    def is_follower(self) -> bool:
        """Whether another broker leads, as far as this one knows."""
        return not self.is_leader and self.leadership.leader_id != NO_LEADER

    def lead(self, leadership: Leadership, now_ms: int) -> bool:
        """Lead in a leader epoch above the present one; return whether another broker may have led just before it.

        A new leader discards the positions of followers, and counts the members of the ISR as caught up now. In the
        next epoch of the same leader positions stay valid: it has lost no records, and appends that producers wait for
        are committed as before. If this broker has not heard of the epochs between, another broker may have led in
        them, and followers may have truncated their logs: positions are discarded too, and appends wait for new ones.

        A leader that recovers from an unclean election counts as recovered immediately: its ISR is itself alone.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the state is unchanged.
        """
        keeps_positions = self.is_leader and leadership.leader_epoch == self.leader_epoch + 1
        self.log.appends.assign_epoch(leadership.leader_epoch)
        if not self.is_leader:
            self.leading_since = leadership.leader_epoch
        known, self._followers = self._followers, {}
        for replica in dict.fromkeys((*leadership.replicas, *leadership.isr)):
            if replica == self._broker_id:
                continue
            follower = known.get(replica) if keeps_positions else None
            if follower is None:
                follower = FollowerProgress()
            follower.leader_elected_again(
                self.log.log_end_offset if keeps_positions else UNKNOWN_OFFSET,
                now_ms,
                is_in_sync=replica in leadership.isr,
            )
            self._followers[replica] = follower
        self._apply(leadership)
        self.is_leader = True
        self.is_alone = not self._followers
        self.advance_high_watermark(now_ms)
        return not keeps_positions

    def follow(self, leadership: Leadership) -> None:
        """Follow in a leader epoch above the present one."""
        self._apply(leadership)
        self._resign()

    def stop(self) -> None:
        """Neither lead nor follow until a LeaderAndIsr request with a newer leader epoch."""
        self.leadership = replace(self.leadership, leader_id=NO_LEADER)
        self.version += 1
        self._resign()

    def replace_log(self, log: Log) -> None:
        """Serve from `log`, which holds the same records in another log directory."""
        self.log = log
        self.version += 1

    def reconfigure(self, config: LogConfig) -> None:
        """Apply the topic's new effective configuration from the next append on."""
        self.log.reconfigure(config)
        self.version += 1

    def _resign(self) -> None:
        self.is_leader = False
        self.leading_since = NO_EPOCH
        self.is_alone = False
        self.isr_change = None
        self._followers = {}

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this broker leads, and that the client's leader epoch is the present one (KIP-320).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        self.require_epoch(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_replica(self, current_leader_epoch: int) -> None:
        """Check that this broker leads or follows, and that the client's leader epoch is the present one (KIP-392).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        self.require_epoch(current_leader_epoch)
        if not self.is_leader and not self.is_follower:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_epoch(self, current_leader_epoch: int) -> None:
        """Check that the client's leader epoch, if it has one, is the current one, whichever broker leads.

        Raises KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            is_older = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return where the records of `epoch` end in the leader's log; see `LeaderEpochs.end_offset_for`."""
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def require_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Check that the replica id of a fetch is assigned to this partition.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH, so that a replica which was just assigned retries; NOT_LEADER_OR_FOLLOWER
                if the fetch has no leader epoch.
        """
        if replica_id not in self.leadership.replicas or replica_id == self._broker_id:
            knows_epoch = current_leader_epoch != NO_EPOCH
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_refusal(self) -> KafkaError:
        """Return why an append that demands enough in-sync replicas (acks=all) is refused now."""
        if not self.is_leader:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The size of the current ISR {list(self.leadership.isr)} is insufficient to satisfy the min.isr "
            f"requirement of {self.min_in_sync} for partition {self.topic}-{self.partition}",
        )

    @property
    def has_enough_in_sync(self) -> bool:
        leadership = self.leadership
        in_sync = len(leadership.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= len(leadership.replicas)

    @property
    def min_in_sync(self) -> int:
        """`min.insync.replicas`, but at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.leadership.replicas))

    @property
    def is_under_replicated(self) -> bool:
        """Whether this broker leads it and a replica is not in sync. Replicas that are being added do not count."""
        leadership = self.leadership
        return self.is_leader and len(leadership.isr) < len(leadership.replicas) - len(leadership.adding)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this broker leads it and fewer replicas are in sync than `min_in_sync`."""
        return self.is_leader and len(self.leadership.isr) < self.min_in_sync

    @property
    def is_at_min_isr(self) -> bool:
        """Whether this broker leads it and exactly `min_in_sync` replicas are in sync."""
        return self.is_leader and len(self.leadership.isr) == self.min_in_sync

    def is_committed(self, end_offset: int) -> bool:
        """Return whether every in-sync replica has all records below `end_offset`, and enough replicas are in sync."""
        return self.log.high_watermark >= end_offset and self.has_enough_in_sync

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Commit the records that all required replicas have; return whether the high watermark advanced.

        While fewer than `min.insync.replicas` replicas are in sync, nothing is committed (KIP-966).
        """
        log = self.log
        if self.is_alone:  # every append is committed, and this is the hot path
            return log.advance_high_watermark(log.log_end_offset)
        if not self.has_enough_in_sync:
            return False
        return log.advance_high_watermark(
            committed_offset(
                log.log_end_offset,
                self._followers,
                self.maximal_isr,
                is_alive=self._rules.is_alive,
                now_ms=now_ms,
                lag_ms_max=self._rules.lag_ms_max,
            )
        )

    @property
    def maximal_isr(self) -> Sequence[int]:
        """The in-sync replicas, with those whose joining or leaving the controller has not confirmed."""
        return self.leadership.isr if self.isr_change is None else self.isr_change.maximal

    def progress_of(self, replica_id: int) -> FollowerProgress | None:
        """Return how far a follower is, None if there is no such follower."""
        return self._followers.get(replica_id)

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> Effects:
        """Note that a follower has all records below `fetch_offset`.

        `require_follower` has accepted the follower, and `fetch_offset` is within the log.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER for a fetch of an earlier registration of the follower, which may have
                lost records since.
        """
        follower = self._followers.setdefault(replica_id, FollowerProgress())
        if UNKNOWN_BROKER_EPOCH < broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"A fetch of {self.topic}-{self.partition} by broker {replica_id} has the broker epoch {broker_epoch}, "
                f"which is older than {follower.broker_epoch}",
            )
        effects: list[Effect | IsrChange] = []
        if log_start_offset != follower.log_start_offset:
            effects.append(Effect.LOG_START_REPORTED)
        follower.fetched(fetch_offset, log_start_offset, self.log.log_end_offset, broker_epoch, now_ms)
        # First the ISR: once the follower belongs to the maximal ISR, the high watermark waits for it.
        if self.isr_change is None and replica_id not in self.leadership.isr:
            effects.extend(self._expand(replica_id, follower))
        if self.advance_high_watermark(now_ms):
            effects.append(Effect.HIGH_WATERMARK_ADVANCED)
        return tuple(effects)

    def _expand(self, replica_id: int, follower: FollowerProgress) -> Effects:
        leadership = self.leadership
        epoch_start_offset = self.log.leader_epochs.start_offset_of(self.leader_epoch)
        is_complete = may_join(follower, high_watermark=self.log.high_watermark, epoch_start_offset=epoch_start_offset)
        if not is_complete or replica_id not in leadership.replicas or not self._rules.is_alive(replica_id):
            return ()
        return self._change_isr((*leadership.isr, replica_id), {})

    def time_passed(self, now_ms: int) -> Effects:
        """Have followers leave the ISR that lag for longer than `replica.lag.time.max.ms`.

        Also commit what has only waited for a follower that was about to join, and has lagged for that long since.
        """
        if not self.is_leader or self.is_alone:
            return ()
        effects = (Effect.HIGH_WATERMARK_ADVANCED,) if self.advance_high_watermark(now_ms) else ()
        if self.isr_change is not None:
            return effects
        leadership = self.leadership
        lagging = out_of_sync(
            leadership.isr,
            self._followers,
            leader_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            lag_ms_max=self._rules.lag_ms_max,
        )
        if not lagging:
            return effects
        return (*effects, *self._change_isr(tuple(it for it in leadership.isr if it not in lagging), lagging))

    def expand_isr(self) -> Effects:
        """Have a follower with all records join the ISR that could not join when it fetched.

        Another change was in flight then, or the controller has refused this one, or the follower was not known to be
        alive. Its fetches name the partition again only when there are records that it lacks.

        It must have fetched in the present leader epoch: what it had before it left the ISR, it may have lost in a
        crash, and by an older protocol no broker epoch shows that it has restarted.
        """
        if not self.is_leader or self.isr_change is not None:
            return ()
        for replica_id, follower in self._followers.items():
            has_all = follower.has_fetched and follower.log_end_offset == self.log.log_end_offset
            if has_all and replica_id not in self.leadership.isr and (effects := self._expand(replica_id, follower)):
                return effects
        return ()

    def _change_isr(self, proposed: tuple[int, ...], lags: Mapping[int, str]) -> Effects:
        leadership = self.leadership
        broker_epochs = {each: known.broker_epoch for each in proposed if (known := self._followers.get(each))}
        self.isr_change = IsrChange(
            tuple(leadership.isr), proposed, leadership.leader_epoch, leadership.partition_epoch, broker_epochs, lags
        )
        return (self.isr_change,)

    def isr_responded(self, change: IsrChange, response: IsrResponse, now_ms: int) -> Effects:
        """Apply the controller's response to `change`; a response to a change that is not in flight is ignored.

        A lost or unclear response may belong to a change that was applied. Then the change stays in flight, and the
        larger set counts, until the controller is asked again or sends newer metadata.
        """
        if self.isr_change is not change:
            return ()
        if response.code in RETURNS_TO_COMMITTED:
            self.isr_change = None
            # What waited for a follower that was about to join no longer does.
            if self.advance_high_watermark(now_ms):
                return Effect.ISR_REFUSED, Effect.HIGH_WATERMARK_ADVANCED
            return (Effect.ISR_REFUSED,)
        if response.code in WAITS_FOR_METADATA:
            return (Effect.ISR_REFUSED,)
        if response.code:
            return (Effect.ISR_REFUSED, change)
        leadership = self.leadership
        if response.leader_epoch > leadership.leader_epoch or response.partition_epoch < leadership.partition_epoch:
            return ()  # of another leadership, which LeaderAndIsr brings, or older than what is known
        self.leadership = replace(leadership, isr=tuple(response.isr), partition_epoch=response.partition_epoch)
        self.isr_change = None
        effects: list[Effect | IsrChange] = [Effect.ISR_COMMITTED]
        if self.advance_high_watermark(now_ms):
            effects.append(Effect.HIGH_WATERMARK_ADVANCED)
        return (*effects, *self.expand_isr())

    def append_fetched(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        now_ms: int,
    ) -> AppendResult | None:
        """Append what was fetched from the leader of `leader_epoch`, and follow its high watermark and log start.

        Returns the result, None without records. If the log directory is slow, the append is planned, and both follow
        only what is stored: call this again without records after `log.planned.when_stored`.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER if this broker does not follow in that epoch; and what
                `LogAppends.append_as_follower` raises.
            TryLaterError: Another thread truncates the log. The fetcher that began this may have been replaced since.
        """
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic}-{self.partition} does not follow in the leader epoch {leader_epoch}",
            )
        log = self.log
        log.planned.refuse_reserved()
        result = None
        if len(records):
            result = log.appends.append_as_follower(records, now_ms=now_ms, leader_epoch=leader_epoch, may_plan=True)
        log.advance_high_watermark(leader_high_watermark)
        if leader_log_start_offset > log.log_start_offset and not log.planned.count:
            log.delete_records_before(min(leader_log_start_offset, log.high_watermark))
        return result

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset` and return the target; HIGH_WATERMARK stands for the high watermark.

        An offset below the present start changes nothing.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, OFFSET_OUT_OF_RANGE.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic}-{self.partition} can not be deleted due to the configured policy",
            )
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if target < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {target} for partition {self.topic}-{self.partition} is not valid",
            )
        log.delete_records_before(target)
        return target

    def low_watermark(self, is_live: Callable[[int], bool]) -> int:
        """Return the lowest log start offset of all live replicas, as their last fetches reported it."""
        start_offsets = {replica: follower.log_start_offset for replica, follower in self._followers.items()}
        start_offsets[self._broker_id] = self.log.log_start_offset
        waited_for = (it for it in self.leadership.replicas if it == self._broker_id or is_live(it))
        return low_watermark(waited_for, start_offsets)

    def readable_end_offset(self, isolation: FetchIsolation) -> int:
        """Return the offset up to which (exclusive) a reader with this isolation may read."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is FetchIsolation.LAST_STABLE_OFFSET:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    def _apply(self, leadership: Leadership) -> None:
        assert leadership.leader_epoch > self.leader_epoch, "`AssignedReplicas` refuses what is not newer"
        self.leadership = leadership
        self.leader_epoch = leadership.leader_epoch
        self.version += 1
        self.isr_change = None

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        self.log.check()
        leadership, is_leader = self.leadership, self.is_leader
        assert self.leader_epoch == leadership.leader_epoch, "The leader epoch is that of the leadership"
        assert not is_leader or leadership.leader_id == self._broker_id, (
            "A leader is the replica that the leadership names"
        )
        assert NO_EPOCH < self.leading_since <= self.leader_epoch if is_leader else self.leading_since == NO_EPOCH, (
            "A leader leads since an epoch that is not above the present one; another replica leads since none"
        )
        others = {*leadership.replicas, *leadership.isr} - {self._broker_id}
        assert others <= self._followers.keys() if is_leader else not self._followers, (
            "A leader knows the progress of each other replica that is assigned or in sync; another replica knows none"
        )
        assert self.is_alone == (is_leader and not others), "Alone is a leader without such replicas, and only that"
        change = self.isr_change
        if change is not None:
            assert is_leader, "Only a leader has a change of the ISR in flight"
            assert change.committed == tuple(leadership.isr), (
                "The change of the ISR that is in flight starts from the present ISR"
            )
