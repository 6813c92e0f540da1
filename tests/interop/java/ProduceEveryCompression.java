import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes COUNT records with each compression to partition 0 of TOPIC; prints "codec firstOffset lastOffset". */
public class ProduceEveryCompression {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        long firstTimestamp = Long.parseLong(arguments[3]);
        int sequence = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings(bootstrap, codec))) {
                for (int index = 0; index < count; index++, sequence++) {
                    sent.add(producer.send(record(topic, codec, index, firstTimestamp + sequence)));
                }
            }
            long first = sent.get(0).get().offset();
            long last = sent.get(count - 1).get().offset();
            System.out.println(codec + " " + first + " " + last);
        }
    }

    private static Map<String, Object> settings(String bootstrap, String codec) {
        return Map.of(
            "bootstrap.servers", bootstrap,
            "acks", "all",
            "enable.idempotence", true,
            "compression.type", codec,
            "linger.ms", 20,
            "max.block.ms", 20000,
            "delivery.timeout.ms", 40000,
            "key.serializer", StringSerializer.class.getName(),
            "value.serializer", StringSerializer.class.getName());
    }

    /** Every third record has no key, every fifth no value. */
    private static ProducerRecord<String, String> record(String topic, String codec, int index, long timestamp) {
        String key = index % 3 == 0 ? null : "key-" + index;
        String value = index % 5 == 0 ? null : (codec + "-" + index + " ").repeat(20);
        List<Header> headers = List.of(
            new RecordHeader("codec", codec.getBytes(StandardCharsets.UTF_8)), new RecordHeader("nothing", (byte[]) null));
        return new ProducerRecord<>(topic, 0, timestamp, key, value, headers);
    }
}
