import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Members of the share group GROUP read the one partition of TOPIC, which has RECORDS; prints who gets what. */
public class ShareGroup {
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        int records = Integer.parseInt(arguments[3]);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
            try (KafkaShareConsumer<String, String> first = consumer(bootstrap, group)) {
                List<ConsumerRecord<String, String>> got = poll(first, topic, records);
                System.out.println("first: " + got.size() + ", delivery " + got.get(0).deliveryCount().get());
                for (ConsumerRecord<String, String> each : got) {
                    first.acknowledge(each, AcknowledgeType.forId((byte) (1 + each.offset() % 3)));
                }
                System.out.println("stored: " + first.commitSync().values().stream()
                    .map(each -> each.map(Throwable::toString).orElse("yes")).collect(Collectors.joining(",")));
            }
            try (KafkaShareConsumer<String, String> second = consumer(bootstrap, group)) {
                List<ConsumerRecord<String, String>> again = poll(second, topic, records / 3);
                System.out.println("again: " + offsets(again) + ", delivery " + again.get(0).deliveryCount().get());
                again.forEach(each -> second.acknowledge(each, AcknowledgeType.ACCEPT));
                second.commitSync();
                ShareGroupDescription found =
                    admin.describeShareGroups(List.of(group)).describedGroups().get(group).get();
                System.out.println("described: " + found.groupState() + ", " + found.members().stream()
                    .map(each -> each.assignment().topicPartitions()).collect(Collectors.toList()));
            }
            System.out.println("listed: " + admin.listGroups().all().get().stream()
                .filter(each -> each.groupId().equals(group))
                .map(each -> each.type().get() + " " + each.groupState().get()).collect(Collectors.joining()));
            System.out.println("begins at: " + start(admin, group, partition));
            admin.alterShareGroupOffsets(group, Map.of(partition, 1L)).all().get();
            System.out.println("moved to: " + start(admin, group, partition));
            try (KafkaShareConsumer<String, String> third = consumer(bootstrap, group)) {
                System.out.println("after the move: " + offsets(poll(third, topic, records - 1)));
            }
            admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
            System.out.println("forgotten: " + start(admin, group, null));
            admin.deleteShareGroups(List.of(group)).all().get();
            System.out.println("left: " + admin.listGroups().all().get().stream()
                .filter(each -> each.groupId().equals(group)).count());
        }
    }

    private static Object start(Admin admin, String group, TopicPartition partition) throws Exception {
        ListShareGroupOffsetsSpec spec = new ListShareGroupOffsetsSpec();
        if (partition != null) {
            spec.topicPartitions(List.of(partition));
        }
        return admin.listShareGroupOffsets(Map.of(group, spec)).partitionsToOffsetAndMetadata(group).get()
            .values().stream().map(each -> each == null ? null : each.offset()).collect(Collectors.toList());
    }

    private static KafkaShareConsumer<String, String> consumer(String bootstrap, String group) {
        return new KafkaShareConsumer<>(new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "share.acknowledgement.mode", "explicit",
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName())));
    }

    private static List<ConsumerRecord<String, String>> poll(
            KafkaShareConsumer<String, String> consumer, String topic, int count) {
        if (consumer.subscription().isEmpty()) {
            consumer.subscribe(List.of(topic));
        }
        List<ConsumerRecord<String, String>> got = new ArrayList<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (got.size() < count && System.currentTimeMillis() < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(got::add);
        }
        return got;
    }

    private static Set<Long> offsets(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::offset).collect(Collectors.toCollection(TreeSet::new));
    }
}
