import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Locale;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;

/** Prints what Kafka reads in the segments of partition directories, one JSON object a directory: ROOT DIRECTORY... */
public class DecodeLogs {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        for (String directory : Arrays.asList(arguments).subList(1, arguments.length)) {
            ObjectNode content = JSON.createObjectNode().put("directory", directory);
            ArrayNode files = content.putArray("files");
            File[] logs = new File(arguments[0], directory).listFiles((folder, name) -> name.endsWith(".log"));
            Arrays.sort(logs);
            for (File log : logs) {
                ObjectNode file = files.addObject().put("file", log.getName()).put("bytes", log.length());
                ArrayNode batches = file.putArray("batches");
                try (FileRecords records = FileRecords.open(log, false)) {
                    for (FileChannelRecordBatch batch : records.batches()) {
                        add(batches.addObject(), batch);
                    }
                }
            }
            System.out.println(JSON.writeValueAsString(content));
        }
    }

    static void add(ObjectNode json, FileChannelRecordBatch batch) {
        boolean isOld = batch.magic() < RecordBatch.MAGIC_VALUE_V2;
        json.put("position", batch.position()).put("size", batch.sizeInBytes()).put("magic", batch.magic());
        json.put("baseOffset", batch.baseOffset()).put("lastOffset", batch.lastOffset());
        json.put("compression", batch.compressionType().name().toLowerCase(Locale.ROOT));
        json.put("timestampType", batch.timestampType().toString()).put("isValid", batch.isValid());
        if (isOld) {
            // A wrapper of magic 0 has no timestamp; the checksum is that of the wrapper itself.
            json.put("maxTimestamp", batch.maxTimestamp()).put("crc", batch.checksum());
        } else {
            json.put("count", batch.countOrNull()).put("crc", batch.checksum());
            json.put("partitionLeaderEpoch", batch.partitionLeaderEpoch());
            json.put("producerId", batch.producerId()).put("producerEpoch", batch.producerEpoch());
            json.put("baseSequence", batch.baseSequence()).put("lastSequence", batch.lastSequence());
            json.put("isTransactional", batch.isTransactional()).put("isControl", batch.isControlBatch());
            json.put("maxTimestamp", batch.maxTimestamp());
            batch.deleteHorizonMs().ifPresent(horizon -> json.put("deleteHorizonMs", horizon));
        }
        ArrayNode records = json.putArray("records");
        for (Record record : batch) {
            ObjectNode each = records.addObject().put("offset", record.offset()).put("timestamp", record.timestamp());
            each.put("keyHex", hex(record.key())).put("valueHex", hex(record.value()));
            if (batch.isControlBatch()) {
                addMarker(each, record);
            }
            if (record.headers().length > 0) {
                ArrayNode headers = each.putArray("headers");
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    headers.addArray().add(header.key()).add(value == null ? null : hex(ByteBuffer.wrap(value)));
                }
            }
        }
    }

    static void addMarker(ObjectNode json, Record marker) {
        json.put("controlType", ControlRecordType.parse(marker.key()).name());
        json.put("coordinatorEpoch", EndTransactionMarker.deserialize(marker).coordinatorEpoch());
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
