import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of one producer, with the epoch after each: version 2 raises it with every end. Then a copy of partition 0
 * of TOPIC to partition 1, exactly once, by two instances: the first one crashes in the middle and is fenced.
 */
public class TransactionEpochs {
    private static final long PATIENCE_MS = 30_000;

    private static String bootstrap;
    private static String topic;
    private static TopicPartition source;
    private static TopicPartition target;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        source = new TopicPartition(topic, 0);
        target = new TopicPartition(topic, 1);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            FinalizedVersionRange level =
                admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
            System.out.println("feature " + (level == null ? 0 : level.maxVersionLevel()));
            write(admin);
        }
        copy();
        System.out.println("copied " + read(target, "read_committed"));
        System.out.println("written " + read(target, "read_uncommitted"));
    }

    private static void write(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("writer")) {
            producer.initTransactions();
            List<Integer> epochs = new ArrayList<>();
            for (String value : List.of("a", "dropped", "b", "c")) {
                producer.beginTransaction();
                send(producer, source, value);
                if (value.equals("dropped")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                epochs.add(epoch(admin, "writer"));
            }
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.commitTransaction();
            System.out.println("epochs " + epochs + " without records " + epoch(admin, "writer"));
        }
    }

    private static void copy() throws Exception {
        KafkaProducer<String, String> first = producer("copier");
        first.initTransactions();
        try (KafkaConsumer<String, String> consumer = consumer("read_committed")) {
            copyOne(first, consumer, true);
            copyOne(first, consumer, false);
        }
        try (KafkaProducer<String, String> second = producer("copier");
             KafkaConsumer<String, String> consumer = consumer("read_committed")) {
            second.initTransactions();
            copyOne(second, consumer, true);
            try {
                first.commitTransaction();
                System.out.println("not fenced");
            } catch (RuntimeException error) {
                System.out.println("fenced " + error.getClass().getSimpleName());
            }
            first.close(Duration.ZERO);
            copyOne(second, consumer, true);
        }
    }

    private static void copyOne(
            KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, boolean commits)
            throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                producer.beginTransaction();
                send(producer, target, record.value());
                producer.sendOffsetsToTransaction(
                    Map.of(source, new OffsetAndMetadata(record.offset() + 1)), consumer.groupMetadata());
                if (commits) {
                    producer.commitTransaction();
                }
                return;
            }
        }
        throw new IllegalStateException("nothing to copy");
    }

    private static int epoch(Admin admin, String name) throws Exception {
        String id = topic + "-" + name;
        return admin.describeTransactions(List.of(id)).description(id).get().producerEpoch();
    }

    private static KafkaProducer<String, String> producer(String name) {
        return new KafkaProducer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "transactional.id", topic + "-" + name,
            "key.serializer", StringSerializer.class.getName(),
            "value.serializer", StringSerializer.class.getName()));
    }

    /** A consumer that reads one record a poll, from the committed offset of the group on. */
    private static KafkaConsumer<String, String> consumer(String isolation) {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", topic + "-group",
            "max.poll.records", 1,
            "enable.auto.commit", false,
            "isolation.level", isolation,
            "auto.offset.reset", "earliest",
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName()));
        consumer.assign(List.of(source));
        return consumer;
    }

    private static void send(KafkaProducer<String, String> producer, TopicPartition to, String value) throws Exception {
        producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, value))
            .get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    private static List<String> read(TopicPartition from, String isolation) {
        List<String> values = new ArrayList<>();
        Collection<TopicPartition> partitions = List.of(from);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long end = consumer.endOffsets(partitions).get(from);
            while (consumer.position(from) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }
}
