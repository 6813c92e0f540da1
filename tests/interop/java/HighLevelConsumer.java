import java.util.List;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * Clients of 0.8 that use ZooKeeper: {@code write BOOTSTRAP TOPIC FIRST COUNT} sends numbers with every kind of old
 * producer, and {@code read ZOOKEEPER TOPIC GROUP STORAGE LAST} reads as a member of a group until it has read LAST, or
 * for a minute. It prints partition and value of each record.
 */
public class HighLevelConsumer {
    private static final String[][] PRODUCERS = {
        {"sync", "-1", "none"}, {"sync", "1", "gzip"}, {"async", "1", "snappy"}, {"sync", "0", "none"}};
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] arguments) {
        if (arguments[0].equals("write")) {
            write(arguments[1], arguments[2], Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
        } else {
            read(arguments);
        }
    }

    private static void write(String bootstrap, String topic, int first, int count) {
        int number = first;
        for (String[] kind : PRODUCERS) {
            Properties settings = new Properties();
            settings.put("metadata.broker.list", bootstrap);
            settings.put("serializer.class", "kafka.serializer.StringEncoder");
            settings.put("producer.type", kind[0]);
            settings.put("request.required.acks", kind[1]);
            settings.put("compression.codec", kind[2]);
            settings.put("queue.buffering.max.ms", "10");
            Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
            for (int sent = 0; sent < count; sent++, number++) {
                producer.send(new KeyedMessage<>(topic, String.valueOf(number), String.valueOf(number)));
            }
            producer.close();
        }
    }

    private static void read(String[] arguments) {
        String last = arguments[5];
        Properties settings = new Properties();
        settings.put("zookeeper.connect", arguments[1]);
        settings.put("group.id", arguments[3]);
        settings.put("offsets.storage", arguments[4]);
        settings.put("dual.commit.enabled", "true");
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.interval.ms", "100");
        settings.put("zookeeper.session.timeout.ms", "3000");
        settings.put("zookeeper.sync.time.ms", "200");
        settings.put("rebalance.backoff.ms", "500");
        settings.put("rebalance.max.retries", "20");
        settings.put("consumer.timeout.ms", "500");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        List<KafkaStream<byte[], byte[]>> streams =
            connector.createMessageStreamsByFilter(new Whitelist(arguments[2]), 1);
        ConsumerIterator<byte[], byte[]> records = streams.get(0).iterator();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        boolean atEnd = false;
        while (!atEnd && System.currentTimeMillis() < deadline) {
            try {
                MessageAndMetadata<byte[], byte[]> record = records.next();
                String value = new String(record.message());
                System.out.println(record.partition() + " " + value);
                System.out.flush();
                atEnd = value.equals(last);
            } catch (ConsumerTimeoutException expected) {
                continue;
            }
        }
        connector.shutdown();
    }
}
