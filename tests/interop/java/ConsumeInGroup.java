import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads COUNT records of TOPIC as a member of GROUP, prints one a line, fields separated by tabs, and commits. */
public class ConsumeInGroup {
    private static final long PATIENCE_MS = 40_000;

    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName());
        int left = Integer.parseInt(arguments[3]);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            while (left > 0 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(line(record));
                    left--;
                }
            }
            consumer.commitSync();
        }
    }

    private static String line(ConsumerRecord<String, String> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            String value = header.value() == null ? "null" : new String(header.value());
            headers.append(header.key()).append('=').append(value).append(';');
        }
        return String.join("\t", String.valueOf(record.offset()), String.valueOf(record.timestamp()),
            String.valueOf(record.key()), String.valueOf(record.value()), headers);
    }
}
