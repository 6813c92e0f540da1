import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The calls of two web consoles, AKHQ and Kafbat UI, in the order in which their pages make them. */
public class AdminConsoles {
    private static Admin admin;
    private static String topic;
    private static String group;

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        group = topic + "-group";
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (Admin opened = Admin.create(settings)) {
            admin = opened;
            overview();
            topics(settings);
            groups(settings);
            changes();
        }
    }

    /** What both ask when a cluster is opened. */
    private static void overview() throws Exception {
        DescribeClusterResult cluster =
            admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        Node controller = cluster.controller().get();
        say("nodes", cluster.nodes().get().size() + " " + controller.id() + " "
            + new TreeSet<>(cluster.authorizedOperations().get()));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, controller.idString());
        Config config = admin.describeConfigs(List.of(broker)).all().get().get(broker);
        // Kafbat UI guesses from the first what the cluster can do.
        say("version", config.get("inter.broker.protocol.version").value());
        say("deletes", config.get("delete.topic.enable").value());
        say("acls", failure(admin.describeAcls(AclBindingFilter.ANY).values()));
        say("features", failure(admin.describeFeatures().featureMetadata()));
        say("log dirs", admin.describeLogDirs(List.of(controller.id())).allDescriptions().get().size());
        say("quotas", failure(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
    }

    private static void topics(Map<String, Object> settings) throws Exception {
        NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "3600000"));
        admin.createTopics(List.of(wanted)).all().get();
        produce(settings);
        say("listed", admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(topic));
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        say("described", described.partitions().size() + " " + described.isInternal());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        DescribeConfigsOptions full = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ConfigEntry retention = admin.describeConfigs(List.of(resource), full).all().get().get(resource).get("retention.ms");
        say("retention", retention.value() + " " + retention.source() + " " + retention.synonyms().size()
            + " " + (retention.documentation() != null));
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest())) {
            say("offsets", offsets(admin.listOffsets(all(spec)).all().get()));
        }
        Map<String, Object> reader = Map.of("bootstrap.servers", settings.get("bootstrap.servers"));
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(reader, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            say("ends", new TreeMap<>(named(consumer.endOffsets(partitions()))));
            consumer.assign(partitions());
            consumer.seekToBeginning(partitions());
            int count = 0;
            for (int polls = 0; polls < 100 && count < 6; polls++) {
                count += consumer.poll(Duration.ofMillis(200)).count();
            }
            say("browsed", count);
            say("by time", named(consumer.offsetsForTimes(partitions().stream()
                .collect(Collectors.toMap(one -> one, one -> 0L)))).size());
        }
        say("producers", admin.describeProducers(partitions()).all().get().values().stream()
            .mapToInt(state -> state.activeProducers().size()).sum() > 0);
    }

    private static void groups(Map<String, Object> settings) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> positions = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
        admin.alterConsumerGroupOffsets(group, positions).all().get();
        say("groups", admin.listConsumerGroups().all().get().stream().anyMatch(one -> one.groupId().equals(group)));
        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        say("group", described.state() + " " + described.members().size() + " " + described.coordinator().id());
        Map<String, ListConsumerGroupOffsetsSpec> specs =
            Map.of(group, new ListConsumerGroupOffsetsSpec(), "no-such", new ListConsumerGroupOffsetsSpec());
        Map<String, Map<TopicPartition, OffsetAndMetadata>> committed = admin.listConsumerGroupOffsets(specs).all().get();
        say("committed", committed.get(group).values().iterator().next().offset() + " " + committed.get("no-such").size());
        say("offsets deleted", failure(admin.deleteConsumerGroupOffsets(group, positions.keySet()).all()));
        say("group deleted", failure(admin.deleteConsumerGroups(List.of(group)).all()));
        say("group deleted again", failure(admin.deleteConsumerGroups(List.of(group)).all()));
    }

    @SuppressWarnings("deprecation") // AKHQ still replaces whole configurations
    private static void changes() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config replaced = new Config(List.of(new ConfigEntry("cleanup.policy", "compact")));
        say("replaced", failure(admin.alterConfigs(Map.of(resource, replaced)).all()));
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("segment.ms", "600000"), AlterConfigOp.OpType.SET);
        say("set", failure(admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all()));
        say("overrides", admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
            .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
            .map(entry -> entry.name() + "=" + entry.value()).sorted().collect(Collectors.toList()));
        say("widened", failure(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
        say("moved", failure(admin.alterPartitionReassignments(Map.of(
            new TopicPartition(topic, 2), Optional.of(new NewPartitionReassignment(List.of(0))))).all()));
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, topic));
        say("quota", failure(admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(client, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1024.0))))).all()));
        say("quota again", admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(client));
        say("quota removed", failure(admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(client, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all()));
        say("topic deleted", failure(admin.deleteTopics(List.of(topic)).all()));
    }

    private static void produce(Map<String, Object> settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < 6; number++) {
                producer.send(new ProducerRecord<>(topic, number % 2, null, new byte[] {'x'})).get();
            }
        }
    }

    private static Collection<TopicPartition> partitions() {
        return List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
    }

    private static Map<TopicPartition, OffsetSpec> all(OffsetSpec spec) {
        return partitions().stream().collect(Collectors.toMap(one -> one, one -> spec));
    }

    private static Map<Integer, Long> offsets(Map<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> found) {
        Map<Integer, Long> result = new TreeMap<>();
        found.forEach((partition, info) -> result.put(partition.partition(), info.offset()));
        return result;
    }

    private static <T> Map<Integer, T> named(Map<TopicPartition, T> found) {
        Map<Integer, T> result = new TreeMap<>();
        found.forEach((partition, value) -> result.put(partition.partition(), value));
        return result;
    }

    private static void say(String call, Object result) {
        System.out.println(call + ": " + result);
    }

    private static String failure(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return "none";
        } catch (ExecutionException wrapped) {
            return wrapped.getCause().getClass().getSimpleName();
        }
    }
}
