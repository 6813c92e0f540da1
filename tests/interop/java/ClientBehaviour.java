import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What applications do with Java clients beside reading and writing: serializers, interceptors, positions and wake-ups.
 *
 * <p>TYPED and MOVED have one partition, KEYED as many as the caller compares.
 */
public class ClientBehaviour {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PATIENCE_MS = 30_000;
    private static final int KEYS = 1000;
    private static String bootstrap;

    public record Customer(int id, String name) { }

    /** Id, length of the name, name: the layout of the book. */
    public static class CustomerSerializer implements Serializer<Customer> {
        @Override
        public byte[] serialize(String topic, Customer customer) {
            byte[] name = customer.name().getBytes(StandardCharsets.UTF_8);
            return ByteBuffer.allocate(8 + name.length).putInt(customer.id()).putInt(name.length).put(name).array();
        }
    }

    public static class CustomerDeserializer implements Deserializer<Customer> {
        @Override
        public Customer deserialize(String topic, byte[] data) {
            ByteBuffer buffer = ByteBuffer.wrap(data);
            int id = buffer.getInt();
            byte[] name = new byte[buffer.getInt()];
            buffer.get(name);
            return new Customer(id, new String(name, StandardCharsets.UTF_8));
        }
    }

    public static class Stamp implements ProducerInterceptor<Integer, Customer> {
        static int acknowledged;

        @Override
        public ProducerRecord<Integer, Customer> onSend(ProducerRecord<Integer, Customer> record) {
            record.headers().add("stamp", new byte[] {1});
            return record;
        }

        @Override
        public void onAcknowledgement(RecordMetadata metadata, Exception error) {
            acknowledged += error == null ? 1 : 0;
        }

        @Override
        public void close() { }

        @Override
        public void configure(Map<String, ?> settings) { }
    }

    public static class Count implements ConsumerInterceptor<Integer, Customer> {
        static int stamped;

        @Override
        public ConsumerRecords<Integer, Customer> onConsume(ConsumerRecords<Integer, Customer> records) {
            for (ConsumerRecord<Integer, Customer> record : records) {
                stamped += record.headers().lastHeader("stamp") == null ? 0 : 1;
            }
            return records;
        }

        @Override
        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) { }

        @Override
        public void close() { }

        @Override
        public void configure(Map<String, ?> settings) { }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        serialize(arguments[1]);
        partition(arguments[2]);
        position(arguments[3]);
        wakeUp(arguments[3], arguments[3] + "-group");
    }

    private static Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", "behaviour"));
        settings.putAll(more);
        return settings;
    }

    private static void serialize(String topic) throws Exception {
        Map<String, Object> writes = settings(Map.of("interceptor.classes", List.of(Stamp.class)));
        try (KafkaProducer<Integer, Customer> producer =
                 new KafkaProducer<>(writes, new IntegerSerializer(), new CustomerSerializer())) {
            producer.send(new ProducerRecord<>(topic, 0, -7, new Customer(42, "Ann Ærø"))).get();
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<String, Object> reads = settings(Map.of("interceptor.classes", List.of(Count.class)));
        try (KafkaConsumer<Integer, Customer> consumer =
                 new KafkaConsumer<>(reads, new IntegerDeserializer(), new CustomerDeserializer())) {
            ConsumerRecord<Integer, Customer> record = first(consumer, partition, 0);
            System.out.println("typed " + record.key() + " " + record.value());
        }
        System.out.println("intercepted " + Stamp.acknowledged + " " + Count.stamped);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings(Map.of()), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            ConsumerRecord<byte[], byte[]> record = first(consumer, partition, 0);
            System.out.println("bytes " + ByteBuffer.wrap(record.key()).getInt() + " " + record.value().length);
        }
    }

    /** Prints the partition of each key, one digit each. */
    private static void partition(String topic) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, byte[]> producer =
                 new KafkaProducer<>(settings(Map.of()), new StringSerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < KEYS; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "key-" + number, new byte[1])));
            }
        }
        StringBuilder partitions = new StringBuilder();
        for (Future<RecordMetadata> each : sent) {
            partitions.append(each.get().partition());
        }
        System.out.println("partitions " + partitions);
    }

    /** Writes ten records with the timestamps 1000, 2000 and so on, and moves the position over them. */
    private static void position(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(settings(Map.of()), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>(topic, 0, 1000L * (number + 1), null, "v" + number)).get();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            System.out.println("sought " + first(consumer, partition, 5).value());
            consumer.seekToBeginning(List.of(partition));
            System.out.println("beginning " + consumer.position(partition));
            consumer.seekToEnd(List.of(partition));
            System.out.println("end " + consumer.position(partition));
            System.out.println("time " + consumer.offsetsForTimes(Map.of(partition, 3500L)).get(partition).offset());
            try {
                first(consumer, partition, 10_000);
                System.out.println("no error");
            } catch (OffsetOutOfRangeException error) {
                System.out.println("none " + error.offsetOutOfRangePartitions().get(partition));
            }
        }
        for (String policy : List.of("earliest", "latest")) {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("auto.offset.reset", policy))) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 10_000);
                long deadline = System.currentTimeMillis() + PATIENCE_MS;
                long next = 10_000;
                while (next == 10_000 && System.currentTimeMillis() < deadline) {
                    Iterator<ConsumerRecord<String, String>> records = consumer.poll(POLL).iterator();
                    next = records.hasNext() ? records.next().offset() : consumer.position(partition);
                }
                System.out.println(policy + " " + next);
            }
        }
    }

    /** A member that another thread wakes closes, and the other member has its partition long before the session ends. */
    private static void wakeUp(String topic, String group) throws Exception {
        Map<String, Object> member = Map.of("group.id", group, "session.timeout.ms", 1_000_000, "heartbeat.interval.ms", 200);
        KafkaConsumer<String, String> leaving = consumer(member);
        leaving.subscribe(List.of(topic));
        until(leaving, 1);
        Thread thread = new Thread(() -> {
            try (leaving) {
                while (true) {
                    leaving.poll(Duration.ofMinutes(1));
                }
            } catch (WakeupException expected) {
                System.out.println("woken");
            }
        });
        thread.start();
        leaving.wakeup();
        thread.join();
        try (KafkaConsumer<String, String> next = consumer(member)) {
            next.subscribe(List.of(topic));
            until(next, 1);
            System.out.println("taken over " + next.assignment().size());
        }
    }

    private static KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        return new KafkaConsumer<>(settings(more), new StringDeserializer(), new StringDeserializer());
    }

    private static void until(KafkaConsumer<?, ?> consumer, int owned) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (consumer.assignment().size() != owned && System.currentTimeMillis() < deadline) {
            consumer.poll(POLL);
        }
    }

    private static <K, V> ConsumerRecord<K, V> first(KafkaConsumer<K, V> consumer, TopicPartition partition, long offset) {
        consumer.assign(List.of(partition));
        consumer.seek(partition, offset);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<K, V> record : consumer.poll(POLL)) {
                return record;
            }
        }
        throw new IllegalStateException("no record at " + offset);
    }
}
