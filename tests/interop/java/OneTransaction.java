import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactions with the clients of any version since 0.11: two that commit and one between them that aborts, each of a
 * record in partition 1 of TOPIC and an offset of GROUP in partition 0. Prints what a reader of committed records sees.
 *
 * <p>Groups were named by their id before 2.5 and by what a consumer knows of them since; 4.0 knows only that.
 */
public class OneTransaction {
    private static final long PATIENCE_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        String group = arguments[2];
        TopicPartition source = new TopicPartition(topic, 0);
        write(new HashMap<>(settings), topic, group, source);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition target = new TopicPartition(topic, 1);
            consumer.assign(Collections.singletonList(target));
            List<String> values = new ArrayList<>();
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (values.size() < 2 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<?, ?> record : poll(consumer)) {
                    values.add(record.offset() + ":" + record.value());
                }
            }
            System.out.println("read " + String.join(" ", values));
            consumer.assign(Collections.singletonList(source));
            System.out.println("position " + consumer.position(source));
        }
    }

    private static void write(Map<String, Object> settings, String topic, String group, TopicPartition source)
            throws Exception {
        settings.put("transactional.id", "of-" + topic);
        settings.put("linger.ms", 0);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            String[] values = {"kept", "dropped", "kept-too"};
            for (int index = 0; index < values.length; index++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 1, null, values[index])).get();
                sendOffset(producer, group, source, 5 + index);
                if (values[index].equals("dropped")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    private static void sendOffset(KafkaProducer<?, ?> producer, String group, TopicPartition source, long offset)
            throws Exception {
        Object consumers = group;
        Class<?> named = String.class;
        try {
            named = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            consumers = named.getConstructor(String.class).newInstance(group);
        } catch (ClassNotFoundException older) {
            // The group's id is all there is.
        }
        KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, named)
            .invoke(producer, Collections.singletonMap(source, new OffsetAndMetadata(offset)), consumers);
    }

    private static Iterable<ConsumerRecord<?, ?>> poll(KafkaConsumer<?, ?> consumer) throws Exception {
        Object records;
        try {
            Method poll = KafkaConsumer.class.getMethod("poll", Duration.class);
            records = poll.invoke(consumer, Duration.ofMillis(100));
        } catch (NoSuchMethodException older) {
            records = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
        }
        return (Iterable<ConsumerRecord<?, ?>>) records;
    }
}
