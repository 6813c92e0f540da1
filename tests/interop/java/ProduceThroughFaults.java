import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Sends COUNT records of SIZE bytes to partition 0 of TOPIC, each in a batch of its own and beginning with its number.
 * Further arguments are settings of the producer, KEY=VALUE. Prints how many were stored, or how the first one failed
 * that found no room in the producer's buffer.
 */
public class ProduceThroughFaults {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("batch.size", 0);
        settings.put("linger.ms", 0);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        for (int index = 4; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        int size = Integer.parseInt(arguments[3]);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            String value = number + " ".repeat(Math.max(0, size - String.valueOf(number).length()));
            long start = System.nanoTime();
            Future<RecordMetadata> delivery = producer.send(new ProducerRecord<>(arguments[1], 0, null, value));
            long blockedMs = (System.nanoTime() - start) / 1_000_000;
            Throwable failure = delivery.isDone() ? failureOf(delivery) : null;
            if (failure != null) {
                long limitMs = Long.parseLong((String) settings.get("max.block.ms"));
                boolean isTimeout = failure instanceof TimeoutException;
                System.out.println(failure.getClass().getSimpleName() + " is a timeout: " + isTimeout);
                System.out.println("blocked for max.block.ms: " + (blockedMs >= limitMs));
                producer.close(Duration.ZERO);
                return;
            }
            sent.add(delivery);
        }
        int stored = 0;
        for (Future<RecordMetadata> delivery : sent) {
            delivery.get();
            stored++;
        }
        producer.close();
        System.out.println("stored " + stored);
    }

    private static Throwable failureOf(Future<RecordMetadata> delivery) throws InterruptedException {
        try {
            delivery.get();
            return null;
        } catch (ExecutionException failure) {
            return failure.getCause();
        }
    }
}
