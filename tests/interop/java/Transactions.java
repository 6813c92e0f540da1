import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Commits, aborts and fences transactions on TOPIC, ends one by hand, and prints what became of each step. */
public class Transactions {
    private static final long PATIENCE_MS = 30_000;

    private static String bootstrap;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        String group = topic + "-group";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
             KafkaProducer<String, String> producer = producer("first")) {
            producer.initTransactions();
            producer.beginTransaction();
            write(producer, "committed");
            offsets(producer, group, 5);
            producer.commitTransaction();
            producer.beginTransaction();
            write(producer, "aborted");
            offsets(producer, group, 9);
            producer.abortTransaction();
            System.out.println("offset " + admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(new TopicPartition(topic, 0)).offset());
            fence(producer);
            endByHand(admin);
            System.out.println("read " + read());
            System.out.println("states " + admin.listTransactions().all().get().stream()
                .filter(each -> each.transactionalId().startsWith(topic))
                .map(each -> each.transactionalId().substring(topic.length() + 1) + "=" + each.state())
                .sorted().collect(Collectors.joining(",")));
        }
    }

    private static void fence(KafkaProducer<String, String> older) throws Exception {
        older.beginTransaction();
        write(older, "fenced");
        try (KafkaProducer<String, String> newer = producer("first")) {
            newer.initTransactions();
            newer.beginTransaction();
            write(newer, "newer");
            newer.commitTransaction();
        }
        try {
            older.commitTransaction();
            System.out.println("not fenced");
        } catch (RuntimeException error) {
            System.out.println("fenced " + error.getClass().getSimpleName());
        }
    }

    private static void endByHand(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        KafkaProducer<String, String> hanging = producer("hanging");
        hanging.initTransactions();
        hanging.beginTransaction();
        write(hanging, "hanging");
        TransactionDescription description =
            admin.describeTransactions(List.of(topic + "-hanging")).description(topic + "-hanging").get();
        System.out.println("described " + description.state() + " " + description.topicPartitions());
        ProducerState open = admin.describeProducers(List.of(partition)).partitionResult(partition).get()
            .activeProducers().stream().filter(each -> each.currentTransactionStartOffset().isPresent())
            .collect(Collectors.toList()).get(0);
        System.out.println("open " + (open.producerId() == description.producerId()));
        admin.abortTransaction(new AbortTransactionSpec(partition, open.producerId(), (short) open.producerEpoch(),
            open.coordinatorEpoch().orElse(-1))).all().get();
        hanging.close(Duration.ZERO);
    }

    private static KafkaProducer<String, String> producer(String name) {
        return new KafkaProducer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "transactional.id", topic + "-" + name,
            "key.serializer", StringSerializer.class.getName(),
            "value.serializer", StringSerializer.class.getName()));
    }

    private static void write(KafkaProducer<String, String> producer, String value) throws Exception {
        producer.send(new ProducerRecord<>(topic, 0, null, value)).get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    private static void offsets(KafkaProducer<String, String> producer, String group, long offset) {
        producer.sendOffsetsToTransaction(
            Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)),
            new ConsumerGroupMetadata(group));
    }

    private static List<String> read() {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest",
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName());
        List<String> values = new ArrayList<>();
        Collection<TopicPartition> partitions = List.of(new TopicPartition(topic, 0));
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            long end = consumer.endOffsets(partitions).values().iterator().next();
            while (consumer.position(partitions.iterator().next()) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }
}
