import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * A whole round with the clients of any version since 0.9, in one JVM: writes COUNT records with each of CODECS to each
 * partition of TOPIC, reads them in a group of two that becomes a group of one, commits, and continues from there.
 *
 * <p>It uses only what all versions have, down to polls that take milliseconds where durations came later.
 */
public class OneClient {
    private static final int PARTITIONS = 4;
    private static final long PATIENCE_MS = 30_000;

    private final String bootstrap;
    private final String topic;
    private final String group;

    private OneClient(String bootstrap, String topic, String group) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
    }

    public static void main(String[] arguments) throws Exception {
        OneClient client = new OneClient(arguments[0], arguments[1], arguments[2]);
        int count = Integer.parseInt(arguments[3]);
        String[] codecs = arguments[4].split(",");
        for (String codec : codecs) {
            System.out.println("written " + codec + " " + client.write(codec, count));
        }
        client.readAndShare(codecs.length * count * PARTITIONS);
        client.write(codecs[0], 1);
        client.resume();
    }

    /** The last offset of partition 0. */
    private long write(String codec, int count) throws Exception {
        Map<String, Object> settings = settings();
        settings.put("acks", "all");
        settings.put("compression.type", codec);
        settings.put("linger.ms", 20);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int index = 0; index < count * PARTITIONS; index++) {
                String key = index % 3 == 0 ? null : "key-" + index;
                sent.add(producer.send(new ProducerRecord<>(topic, index % PARTITIONS, key, codec + "-" + index)));
            }
        }
        long last = -1;
        for (Future<RecordMetadata> delivery : sent) {
            if (delivery.get().partition() == 0) {
                last = delivery.get().offset();
            }
        }
        return last;
    }

    private void readAndShare(int count) throws Exception {
        Set<String> values = new HashSet<>();
        try (Member first = new Member()) {
            until(() -> first.owned() == PARTITIONS && values.size() == count, () -> values.addAll(first.poll()));
            System.out.println("read " + values.size());
            OtherMember second = new OtherMember();
            second.start();
            until(() -> second.owned.size() == 2 && first.owned() == 2, first::poll);
            Set<TopicPartition> both = new HashSet<>(first.consumer.assignment());
            both.addAll(second.owned);
            System.out.println("shared " + first.owned() + " " + second.owned.size() + " of " + both.size());
            second.leaves = true;
            until(() -> !second.isAlive() && first.owned() == PARTITIONS, first::poll);
            System.out.println("left " + first.owned());
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (TopicPartition partition : first.consumer.assignment()) {
                offsets.put(partition, new OffsetAndMetadata(count / PARTITIONS, "half way"));
            }
            first.consumer.commitSync(offsets);
            System.out.println("committed " + offsets.size());
        }
    }

    private void resume() throws Exception {
        List<String> values = new ArrayList<>();
        try (Member member = new Member()) {
            until(() -> values.size() >= PARTITIONS, () -> values.addAll(member.poll()));
            Collections.sort(values);
            System.out.println("resumed " + String.join(" ", values));
        }
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static void until(BooleanSupplier reached, Runnable step) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!reached.getAsBoolean() && System.currentTimeMillis() < deadline) {
            step.run();
        }
    }

    /** Polls in a thread of its own until asked to leave: the oldest clients rejoin during a rebalance only while they poll. */
    private final class OtherMember extends Thread {
        private volatile Set<TopicPartition> owned = Set.of();
        private volatile boolean leaves;

        @Override
        public void run() {
            try (Member member = new Member()) {
                while (!leaves) {
                    member.poll();
                    owned = new HashSet<>(member.consumer.assignment());
                }
            } catch (ReflectiveOperationException failure) {
                throw new IllegalStateException(failure);
            }
        }
    }

    /** One consumer of the group; `subscribe` took a list before it took any collection, and `poll` a number. */
    private final class Member implements AutoCloseable {
        private final KafkaConsumer<String, String> consumer;

        Member() throws ReflectiveOperationException {
            Map<String, Object> settings = settings();
            settings.put("group.id", group);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", false);
            settings.put("heartbeat.interval.ms", 200);
            settings.put("session.timeout.ms", 6000);
            settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
            settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
            consumer = new KafkaConsumer<>(settings);
            method("subscribe", List.class, java.util.Collection.class).invoke(consumer, List.of(topic));
        }

        List<String> poll() {
            List<String> values = new ArrayList<>();
            try {
                java.lang.reflect.Method poll = method("poll", long.class, java.time.Duration.class);
                boolean takesNumber = poll.getParameterTypes()[0] == long.class;
                Object records = poll.invoke(consumer, takesNumber ? (Object) 100L : java.time.Duration.ofMillis(100));
                for (ConsumerRecord<?, ?> record : (Iterable<ConsumerRecord<?, ?>>) records) {
                    values.add(record.partition() + ":" + record.offset() + ":" + record.value());
                }
            } catch (ReflectiveOperationException failure) {
                throw new IllegalStateException(failure);
            }
            return values;
        }

        int owned() {
            return consumer.assignment().size();
        }

        /** The public method of that name that takes one of the two types. */
        private java.lang.reflect.Method method(String name, Class<?> older, Class<?> newer) throws NoSuchMethodException {
            try {
                return KafkaConsumer.class.getMethod(name, newer);
            } catch (NoSuchMethodException absent) {
                return KafkaConsumer.class.getMethod(name, older);
            }
        }

        @Override
        public void close() {
            consumer.close();
        }
    }
}
