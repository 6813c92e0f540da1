import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Two members share the partitions of TOPIC, each with one of the PROTOCOLS; prints what each has, and what is read. */
public class GroupOfTwo {
    private static final long PATIENCE_MS = 60_000;
    private static int count;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        int partitions = Integer.parseInt(arguments[3]), records = Integer.parseInt(arguments[4]);
        try (KafkaConsumer<String, String> first = consumer(bootstrap, group, arguments[5])) {
            first.subscribe(List.of(topic));
            until("first alone", () -> poll(first) == partitions && count >= records);
            say("first alone", first);
            try (KafkaConsumer<String, String> second = consumer(bootstrap, group, arguments[6])) {
                second.subscribe(List.of(topic));
                until("shared", () -> poll(first) + poll(second) == partitions && !second.assignment().isEmpty());
                say("first", first);
                say("second", second);
                first.commitSync();
                second.commitSync();
                describe(bootstrap, group);
            }
            until("first again", () -> poll(first) == partitions);
            say("first again", first);
            long committed = 0;
            Set<TopicPartition> all = first.assignment();
            for (var offset : first.committed(all).values()) {
                committed += offset == null ? 0 : offset.offset();
            }
            System.out.println("read " + count + ", committed " + committed);
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            System.out.println(admin.listGroups().all().get().stream()
                .filter(each -> each.groupId().equals(group))
                .map(each -> each.type().get() + " " + each.groupState().get()).collect(Collectors.joining()));
            admin.deleteConsumerGroups(List.of(group)).all().get();
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group, String protocol) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "group.protocol", protocol,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName()));
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", 200);
        }
        return new KafkaConsumer<>(settings);
    }

    private static int poll(KafkaConsumer<String, String> consumer) {
        count += consumer.poll(Duration.ofMillis(50)).count();
        return consumer.assignment().size();
    }

    private static void until(String what, BooleanSupplier condition) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not in time: " + what + ", read " + count);
            }
        }
    }

    private static void say(String name, KafkaConsumer<String, String> consumer) {
        System.out.println(name + ": " + numbers(consumer.assignment()));
    }

    private static Set<Integer> numbers(Set<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void describe(String bootstrap, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            System.out.println("described: " + found.type() + " " + found.groupState() + " "
                + found.partitionAssignor() + " " + found.members().size() + " members");
        }
    }
}
