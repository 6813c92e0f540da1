import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads the committed records of partition 0 of TOPIC as a consumer in RACK until the value LAST; prints the brokers
 * that it was sent to, and then offset and value of each record.
 */
public class NearReader {
    private static final long PATIENCE_MS = 90_000;

    public static void main(String[] arguments) {
        String last = arguments[3];
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[0],
            "client.rack", arguments[2],
            "isolation.level", "read_committed",
            "metadata.max.age.ms", 500,
            "request.timeout.ms", 2000,
            "reconnect.backoff.max.ms", 200,
            "key.deserializer", StringDeserializer.class.getName(),
            "value.deserializer", StringDeserializer.class.getName()));
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        List<String> read = new ArrayList<>();
        List<Integer> sentTo = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        boolean atEnd = false;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, 0);
            while (!atEnd && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    read.add(record.offset() + " " + record.value());
                    atEnd |= record.value().equals(last);
                }
                int replica = preferredReplica(consumer.metrics());
                if (replica >= 0 && !sentTo.contains(replica)) {
                    sentTo.add(replica);
                }
            }
        }
        System.out.println("sent to " + sentTo);
        read.forEach(System.out::println);
    }

    private static int preferredReplica(Map<MetricName, ? extends Metric> metrics) {
        return metrics.entrySet().stream()
            .filter(each -> each.getKey().name().equals("preferred-read-replica"))
            .mapToInt(each -> ((Number) each.getValue().metricValue()).intValue())
            .findFirst().orElse(-1);
    }
}
