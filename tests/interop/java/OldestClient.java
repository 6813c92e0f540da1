import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.FetchRequestBuilder;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetFetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Clients of 0.8: writes COUNT records with each compression, reads them one partition at a time, keeps an offset. */
public class OldestClient {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4"};

    public static void main(String[] arguments) throws Exception {
        String host = arguments[0].split(":")[0];
        int port = Integer.parseInt(arguments[0].split(":")[1]);
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[3]);
        for (String codec : CODECS) {
            System.out.println("written " + codec + " " + write(arguments[0], topic, codec, count));
        }
        for (String value : read(host, port, topic, count * CODECS.length)) {
            System.out.println("read " + value);
        }
        BlockingChannel channel = new BlockingChannel(
            host, port, BlockingChannel.UseDefaultBufferSize(), BlockingChannel.UseDefaultBufferSize(), 10000);
        channel.connect();
        untilCoordinated(channel, arguments[2] + 1);
        for (short version : new short[] {0, 1}) {
            System.out.println("committed " + committed(channel, arguments[2] + version, topic, version));
        }
        channel.disconnect();
    }

    private static long write(String bootstrap, String topic, String codec, int count) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("compression.type", codec);
        settings.put("linger.ms", 20);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        for (int index = 0; index < count; index++) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, "key-" + index, codec + "-" + index)));
        }
        producer.close();
        return sent.get(count - 1).get().offset();
    }

    private static List<String> read(String host, int port, String topic, int count) {
        List<String> values = new ArrayList<>();
        SimpleConsumer consumer = new SimpleConsumer(host, port, 10000, 65536, "oldest");
        long next = 0;
        for (int attempt = 0; values.size() < count && attempt < 50; attempt++) {
            FetchRequestBuilder wanted = new FetchRequestBuilder().clientId("oldest").maxWait(500).minBytes(1);
            for (MessageAndOffset found : consumer.fetch(wanted.addFetch(topic, 0, next, 65536).build()).messageSet(topic, 0)) {
                if (found.offset() >= next) {
                    ByteBuffer payload = found.message().payload();
                    byte[] bytes = new byte[payload.remaining()];
                    payload.get(bytes);
                    values.add(found.offset() + " " + new String(bytes));
                    next = found.offset() + 1;
                }
            }
        }
        consumer.close();
        return values;
    }

    /** The first question for a coordinator makes the topic of the offsets, which takes a moment. */
    private static void untilCoordinated(BlockingChannel channel, String group) throws InterruptedException {
        for (int attempt = 0; attempt < 100; attempt++) {
            channel.send(new ConsumerMetadataRequest(group, ConsumerMetadataRequest.CurrentVersion(), 0, "oldest"));
            if (ConsumerMetadataResponse.readFrom(channel.receive().buffer()).errorCode() == 0) {
                return;
            }
            Thread.sleep(100);
        }
    }

    /** Version 0 keeps offsets where ZooKeeper had them, version 1 with the group's coordinator. */
    private static String committed(BlockingChannel channel, String group, String topic, short version) {
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(partition, new OffsetAndMetadata(7, "half way", -1));
        channel.send(new OffsetCommitRequest(group, offsets, 1, "oldest", version).underlying());
        channel.receive();
        channel.send(new OffsetFetchRequest(group, List.of(partition), version, 2, "oldest").underlying());
        OffsetMetadataAndError found = OffsetFetchResponse.readFrom(channel.receive().buffer()).offsets().get(partition);
        return found.offset() + " " + found.metadata() + " " + found.error();
    }
}
