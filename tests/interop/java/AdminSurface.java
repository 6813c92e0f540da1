import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** Asks what an administrator can ask of one broker, of topic NAME and others; prints one "request: result" a line. */
public class AdminSurface {
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        String name = arguments[1];
        try (Admin opened = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin = opened;
            topics(name);
            configs(name);
            records(name);
            placement(name);
            users(name);
            quotas(name);
            security(name);
            transactions(name);
            cluster();
            givenReplicas(name);
        }
    }

    static void topics(String name) {
        NewTopic wanted = new NewTopic(name, 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
        say("create", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(wanted));
            return made.numPartitions(name).get() + " " + made.replicationFactor(name).get() + " "
                + entry(made.config(name).get().get("retention.ms")) + " " + made.config(name).get().entries().size();
        });
        say("create gap", () -> admin.createTopics(List.of(
            new NewTopic(name + "-gap", Map.of(1, List.of(0))))).all().get());
        say("create none", () -> admin.createTopics(List.of(new NewTopic(name + "-none", 0, (short) 1))).all().get());
        say("create unknown config", () -> admin.createTopics(List.of(
            new NewTopic(name + "-odd", 1, (short) 1).configs(Map.of("no.such", "1")))).all().get());
        say("create compacted", () -> admin.createTopics(List.of(
            new NewTopic(name + "-compacted", 1, (short) 1).configs(Map.of("cleanup.policy", "compact")))).all().get());
        say("describe", () -> {
            TopicDescription found = admin.describeTopics(List.of(name),
                new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get(name);
            return found.isInternal() + " " + found.partitions().size() + " " + found.partitions().get(1).leader().id() + " "
                + new TreeSet<>(found.authorizedOperations());
        });
        say("describe unknown", () -> admin.describeTopics(List.of("no-such")).allTopicNames().get());
        say("widen", () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get());
        say("widen to the same", () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get());
        say("widen wrongly", () -> admin.createPartitions(
            Map.of(name, NewPartitions.increaseTo(4, List.of(List.of(9))))).all().get());
        say("widen by too many lists", () -> admin.createPartitions(
            Map.of(name, NewPartitions.increaseTo(4, List.of(List.of(0), List.of(0))))).all().get());
        say("widen unknown", () -> admin.createPartitions(Map.of("no-such", NewPartitions.increaseTo(4))).all().get());
        say("delete unknown", () -> admin.deleteTopics(List.of("no-such")).all().get());
    }

    /** Replicas that the administrator places, some of them on brokers that never existed. */
    static void givenReplicas(String name) {
        Map<String, Map<Integer, List<Integer>>> places = new TreeMap<>(Map.of(
            "elsewhere", Map.of(0, List.of(0, 7), 1, List.of(7, 0)),
            "repeated", Map.of(0, List.of(0, 0)),
            "uneven", Map.of(0, List.of(0), 1, List.of(0, 7))));
        places.forEach((each, replicas) -> say("create " + each, () -> admin.createTopics(List.of(
            new NewTopic(name + "-" + each, replicas))).all().get()));
        // A call that waits for a missing leader fails by the broker's timeout or by its own.
        sayKind("create nowhere", () -> admin.createTopics(List.of(new NewTopic(name + "-nowhere", Map.of(0, List.of(7)))),
            new CreateTopicsOptions().timeoutMs(2000)).all().get());
        places.keySet().forEach(each -> say("describe " + each, () -> admin.describeTopics(List.of(name + "-" + each))
            .allTopicNames().get().get(name + "-" + each).partitions().stream()
            .map(found -> (found.leader() == null ? "nobody" : found.leader().id()) + " " + ids(found.replicas()) + " "
                + ids(found.isr())).toList()));
        say("describe nowhere", () -> admin.describeTopics(List.of(name + "-nowhere")).allTopicNames().get());
        sayKind("widen nowhere", () -> admin.createPartitions(Map.of(name + "-nowhere", NewPartitions.increaseTo(2)),
            new CreatePartitionsOptions().timeoutMs(2000)).all().get());
        say("widen elsewhere", () -> admin.createPartitions(
            Map.of(name + "-elsewhere", NewPartitions.increaseTo(3))).all().get());
    }

    static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }

    static void configs(String name) {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        ConfigResource everyone = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "0");
        say("set", () -> alter(topic, false, op("cleanup.policy", "compact", AlterConfigOp.OpType.APPEND),
            op("max.message.bytes", "2000", AlterConfigOp.OpType.SET)));
        say("after set", () -> some(topic, "cleanup.policy", "max.message.bytes", "retention.ms"));
        say("subtract", () -> alter(topic, false, op("cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT),
            op("max.message.bytes", null, AlterConfigOp.OpType.DELETE)));
        say("after subtract", () -> some(topic, "cleanup.policy", "max.message.bytes"));
        say("validate", () -> alter(topic, true, op("retention.ms", "7", AlterConfigOp.OpType.SET)));
        say("after validate", () -> some(topic, "retention.ms"));
        say("bad value", () -> alter(topic, false, op("retention.ms", "much", AlterConfigOp.OpType.SET)));
        say("bad choice", () -> alter(topic, false, op("cleanup.policy", "shred", AlterConfigOp.OpType.SET)));
        say("out of range", () -> alter(topic, false, op("segment.bytes", "1", AlterConfigOp.OpType.SET)));
        say("unknown name", () -> alter(topic, false, op("no.such", "1", AlterConfigOp.OpType.SET)));
        say("append to number", () -> alter(topic, false, op("retention.ms", "1", AlterConfigOp.OpType.APPEND)));
        say("null value", () -> alter(topic, false, op("retention.ms", null, AlterConfigOp.OpType.SET)));
        say("unknown topic", () -> alter(new ConfigResource(ConfigResource.Type.TOPIC, "no-such"), false,
            op("retention.ms", "1", AlterConfigOp.OpType.SET)));
        say("describe unknown topic", () -> some(new ConfigResource(ConfigResource.Type.TOPIC, "no-such"), "x"));
        say("everyone's", () -> alter(everyone, false, op("log.retention.ms", "70000000", AlterConfigOp.OpType.SET)));
        say("a broker's", () -> alter(broker, false, op("log.retention.ms", "80000000", AlterConfigOp.OpType.SET),
            op("max.connections.per.ip.overrides", "127.0.0.9:100", AlterConfigOp.OpType.SET)));
        sleep();
        say("inherited", () -> some(new ConfigResource(ConfigResource.Type.TOPIC, name + "-compacted"), "retention.ms"));
        say("broker's own", () -> some(broker, "log.retention.ms", "max.connections.per.ip.overrides", "broker.id"));
        say("everyone's configs", () -> all(everyone));
        say("read only", () -> alter(broker, false, op("broker.id", "9", AlterConfigOp.OpType.SET)));
        say("bad broker value", () -> alter(broker, false, op("log.cleaner.threads", "-1", AlterConfigOp.OpType.SET)));
        sayKind("too many threads", () -> alter(everyone, false, op("num.io.threads", "1000", AlterConfigOp.OpType.SET)));
        say("other broker", () -> alter(new ConfigResource(ConfigResource.Type.BROKER, "9"), false,
            op("log.retention.ms", "1", AlterConfigOp.OpType.SET)));
        say("no broker", () -> alter(new ConfigResource(ConfigResource.Type.BROKER, "x"), false,
            op("log.retention.ms", "1", AlterConfigOp.OpType.SET)));
        say("reset", () -> alter(everyone, false, op("log.retention.ms", null, AlterConfigOp.OpType.DELETE)));
        say("reset broker", () -> alter(broker, false, op("log.retention.ms", null, AlterConfigOp.OpType.DELETE),
            op("max.connections.per.ip.overrides", null, AlterConfigOp.OpType.DELETE)));
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, name);
        say("client metrics", () -> all(metrics));
        say("set client metrics", () -> alter(metrics, false, op("interval.ms", "100", AlterConfigOp.OpType.SET)));
        sayKind("list client metrics", () -> admin.listClientMetricsResources().all().get().stream()
            .anyMatch(each -> each.name().equals(name)));
        ConfigResource logger = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "0");
        say("logger", () -> alter(logger, false, op("kafka.no.such", "NOISE", AlterConfigOp.OpType.SET)));
        say("logger level", () -> alter(logger, false, op("kafka.server.KafkaApis", "NOISE", AlterConfigOp.OpType.SET)));
        say("root logger", () -> alter(logger, false, op("root", null, AlterConfigOp.OpType.DELETE)));
    }

    static void records(String name) {
        TopicPartition partition = new TopicPartition(name + "-compacted", 0);
        say("delete compacted", () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(0))).all().get());
        TopicPartition plain = new TopicPartition(name + "-plain", 0);
        say("create plain", () -> admin.createTopics(List.of(new NewTopic(name + "-plain", 1, (short) 1))).all().get());
        say("delete too much", () -> admin.deleteRecords(Map.of(plain, RecordsToDelete.beforeOffset(5))).all().get());
        say("delete negative", () -> admin.deleteRecords(Map.of(plain, RecordsToDelete.beforeOffset(-2))).all().get());
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                OffsetSpec.earliestLocal(), OffsetSpec.latestTiered(), OffsetSpec.forTimestamp(5)))
            say("offset " + spec.getClass().getSimpleName(), () -> {
                ListOffsetsResult.ListOffsetsResultInfo found =
                    admin.listOffsets(Map.of(plain, spec)).partitionResult(plain).get();
                return found.offset() + " " + found.timestamp() + " " + found.leaderEpoch();
            });
    }

    static void placement(String name) {
        TopicPartition known = new TopicPartition(name, 0), unknown = new TopicPartition(name, 99);
        for (ElectionType type : ElectionType.values()) {
            say("elect " + type, () -> sorted(admin.electLeaders(type, Set.of(known, unknown)).partitions().get()));
            say("elect all " + type, () -> admin.electLeaders(type, null).partitions().get().size() >= 0);
        }
        say("reassign in place", () -> admin.alterPartitionReassignments(
            Map.of(known, Optional.of(new NewPartitionReassignment(List.of(0))))).all().get());
        for (List<Integer> replicas : List.of(List.of(9), List.of(0, 0), List.of(-1)))
            sayKind("reassign to " + replicas, () -> admin.alterPartitionReassignments(
                Map.of(known, Optional.of(new NewPartitionReassignment(replicas)))).all().get());
        say("reassign unknown", () -> admin.alterPartitionReassignments(
            Map.of(unknown, Optional.of(new NewPartitionReassignment(List.of(0))))).all().get());
        say("cancel", () -> admin.alterPartitionReassignments(Map.of(known, Optional.empty())).all().get());
        say("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
        say("reassignments of", () -> admin.listPartitionReassignments(Set.of(known, unknown)).reassignments().get());
        say("log dirs", () -> {
            Map<String, LogDirDescription> found = admin.describeLogDirs(List.of(0)).allDescriptions().get().get(0);
            LogDirDescription only = found.values().iterator().next();
            ReplicaInfo replica = only.replicaInfos().get(known);
            return found.size() + " " + only.error() + " " + (only.totalBytes().getAsLong() > 0) + " "
                + (only.usableBytes().getAsLong() > 0) + " " + replica.size() + " " + replica.offsetLag() + " "
                + replica.isFuture();
        });
        TopicPartitionReplica replica = new TopicPartitionReplica(name, 0, 0);
        say("move to nowhere", () -> admin.alterReplicaLogDirs(Map.of(replica, "/no/such")).all().get());
        say("move in place", () -> {
            String where = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir();
            return admin.alterReplicaLogDirs(Map.of(replica, where)).all().get();
        });
    }

    static void users(String name) {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        say("users", () -> admin.describeUserScramCredentials(List.of(name)).description(name).get());
        say("add user", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion(name, info, "secret"))).all().get());
        sleep();
        say("user", () -> admin.describeUserScramCredentials(List.of(name)).description(name).get());
        for (int iterations : new int[] {4095, 16385})
            say("iterations " + iterations, () -> admin.alterUserScramCredentials(List.of(
                new UserScramCredentialUpsertion(name, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, iterations),
                    "secret"))).all().get());
        say("remove other", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512))).all().get());
        say("twice", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256),
            new UserScramCredentialUpsertion(name, info, "secret"))).all().get());
        say("remove", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))).all().get());
        say("nameless", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("", info, "secret"))).all().get());
    }

    static void quotas(String name) {
        ClientQuotaEntity user = new ClientQuotaEntity(Map.of("user", name));
        Map<String, String> nobody = new TreeMap<>();
        nobody.put("client-id", null);
        ClientQuotaEntity anyClient = new ClientQuotaEntity(nobody);
        say("set quota", () -> quota(user, false, new ClientQuotaAlteration.Op("producer_byte_rate", 1024.0)));
        say("set default quota", () -> quota(anyClient, false, new ClientQuotaAlteration.Op("request_percentage", 50.0)));
        say("validate quota", () -> quota(user, true, new ClientQuotaAlteration.Op("consumer_byte_rate", 1.0)));
        sleep();
        say("quota", () -> quotasOf(ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofEntity("user", name)))));
        say("default quota", () -> quotasOf(ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofDefaultEntity("client-id")))));
        say("quota of any user", () -> quotasOf(ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntityType("user")))));
        say("unknown quota", () -> quota(user, false, new ClientQuotaAlteration.Op("no_such", 1.0)));
        say("long quota", () -> quota(user, false, new ClientQuotaAlteration.Op("producer_byte_rate", 1024.5)));
        sayKind("negative quota", () -> quota(user, false, new ClientQuotaAlteration.Op("producer_byte_rate", -1.0)));
        say("fraction", () -> quota(new ClientQuotaEntity(Map.of("ip", "127.0.0.1")), false,
            new ClientQuotaAlteration.Op("connection_creation_rate", 1.5)));
        sayKind("bad ip", () -> quota(new ClientQuotaEntity(Map.of("ip", "not an address")), false,
            new ClientQuotaAlteration.Op("connection_creation_rate", 1.0)));
        say("bad entity", () -> quota(new ClientQuotaEntity(Map.of("planet", "mars")), false,
            new ClientQuotaAlteration.Op("producer_byte_rate", 1.0)));
        say("mixed entity", () -> quota(new ClientQuotaEntity(Map.of("ip", "127.0.0.1", "user", name)), false,
            new ClientQuotaAlteration.Op("producer_byte_rate", 1.0)));
        say("bad filter", () -> quotasOf(ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntity("planet", "mars")))));
        say("remove quota", () -> quota(user, false, new ClientQuotaAlteration.Op("producer_byte_rate", null)));
        say("remove default quota", () -> quota(anyClient, false, new ClientQuotaAlteration.Op("request_percentage", null)));
        say("no quotas", () -> quotasOf(ClientQuotaFilter.all()));
    }

    static void security(String name) {
        AclBinding binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL),
            new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW));
        say("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        say("create acl", () -> admin.createAcls(List.of(binding)).all().get());
        say("delete acl", () -> admin.deleteAcls(List.of(binding.toFilter())).all().get());
        say("create token", () -> admin.createDelegationToken().delegationToken().get());
        say("tokens", () -> admin.describeDelegationToken().delegationTokens().get());
        say("renew token", () -> admin.renewDelegationToken(new byte[4]).expiryTimestamp().get());
        say("expire token", () -> admin.expireDelegationToken(new byte[4]).expiryTimestamp().get());
    }

    static void transactions(String name) {
        TopicPartition partition = new TopicPartition(name, 0);
        say("producers", () -> admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers());
        say("fence", () -> admin.fenceProducers(List.of(name)).all().get());
        say("fenced", () -> {
            TransactionDescription found = admin.describeTransactions(List.of(name)).description(name).get();
            return found.state() + " " + found.producerEpoch() + " " + found.transactionTimeoutMs() + " "
                + found.transactionStartTimeMs() + " " + found.topicPartitions();
        });
        say("transaction", () -> admin.describeTransactions(List.of("no-such")).description("no-such").get());
        say("listed", () -> admin.listTransactions(new ListTransactionsOptions().filterStates(
            List.of(TransactionState.EMPTY))).all().get().stream().anyMatch(it -> it.transactionalId().equals(name)));
        say("listed of unknown state", () -> admin.listTransactions(new ListTransactionsOptions().filterStates(
            List.of(TransactionState.UNKNOWN))).all().get().size());
        say("abort", () -> admin.abortTransaction(
            new AbortTransactionSpec(partition, 5, (short) 0, 0)).all().get());
        say("group", () -> {
            ConsumerGroupDescription found =
                admin.describeConsumerGroups(List.of("no-such")).describedGroups().get("no-such").get();
            return found.isSimpleConsumerGroup() + " " + found.members() + " " + found.coordinator().id();
        });
        say("delete group", () -> admin.deleteConsumerGroups(List.of("no-such")).all().get());
        say("offsets", () -> admin.listConsumerGroupOffsets("no-such").partitionsToOffsetAndMetadata().get());
        say("delete offsets", () -> admin.deleteConsumerGroupOffsets("no-such", Set.of(partition)).all().get());
    }

    static void cluster() {
        say("cluster", () -> {
            DescribeClusterResult found = admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true));
            return found.nodes().get().size() + " " + found.controller().get().id() + " "
                + new TreeSet<>(found.authorizedOperations().get());
        });
        say("features", () -> admin.describeFeatures().featureMetadata().get());
        say("update feature", () -> admin.updateFeatures(
            Map.of("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).all().get());
        say("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        say("unregister", () -> admin.unregisterBroker(9).all().get());
    }

    // Small steps

    static AlterConfigOp op(String name, String value, AlterConfigOp.OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    static Object alter(ConfigResource resource, boolean only, AlterConfigOp... ops) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> wanted = Map.of(resource, Arrays.asList(ops));
        return admin.incrementalAlterConfigs(wanted, new AlterConfigsOptions().validateOnly(only)).all().get();
    }

    static Config described(ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true)
            .includeDocumentation(true)).all().get().get(resource);
    }

    static String all(ConfigResource resource) throws Exception {
        TreeMap<String, String> entries = new TreeMap<>();
        for (ConfigEntry it : described(resource).entries())
            entries.put(it.name(), entry(it) + " " + (it.documentation() != null));
        return entries.toString();
    }

    static String some(ConfigResource resource, String... names) throws Exception {
        Config found = described(resource);
        List<String> entries = new ArrayList<>();
        for (String name : names)
            entries.add(entry(found.get(name)));
        return entries.toString();
    }

    static String entry(ConfigEntry it) {
        if (it == null)
            return "none";
        List<String> synonyms = new ArrayList<>();
        for (ConfigEntry.ConfigSynonym synonym : it.synonyms())
            synonyms.add(synonym.name() + "=" + synonym.value() + " " + synonym.source());
        return it.name() + "=" + it.value() + " " + it.source() + " " + it.type() + " " + it.isReadOnly() + " "
            + it.isSensitive() + " " + synonyms;
    }

    static Object quota(ClientQuotaEntity entity, boolean only, ClientQuotaAlteration.Op op) throws Exception {
        return admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(op))),
            new AlterClientQuotasOptions().validateOnly(only)).all().get();
    }

    static Object quotasOf(ClientQuotaFilter filter) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        admin.describeClientQuotas(filter).entities().get().forEach(
            (entity, values) -> found.put(new TreeMap<>(entity.entries()).toString(), new TreeMap<>(values).toString()));
        return found;
    }

    static Object sorted(Map<TopicPartition, Optional<Throwable>> found) {
        TreeMap<String, String> told = new TreeMap<>();
        found.forEach((partition, error) -> told.put(partition.toString(), error.map(AdminSurface::text).orElse("ok")));
        return told;
    }

    static String text(Throwable error) {
        return error.getClass().getSimpleName() + " " + error.getMessage();
    }

    static void sleep() {
        try {
            Thread.sleep(1000);  // changes reach a broker of Kafka through ZooKeeper
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** For what Kafka says in the words of its own collections. */
    static void sayKind(String question, Callable<Object> ask) {
        say(question, () -> {
            try {
                return ask.call();
            } catch (ExecutionException error) {
                return error.getCause().getClass().getSimpleName();
            }
        });
    }

    static void say(String question, Callable<Object> ask) {
        Object answer;
        try {
            answer = ask.call();
        } catch (ExecutionException error) {
            answer = text(error.getCause());
        } catch (Exception error) {
            answer = text(error);
        }
        System.out.println(question + ": " + String.valueOf(answer).replace("\n", " "));
    }
}
