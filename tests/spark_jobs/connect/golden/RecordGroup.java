import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.util.ConnectorTaskId;

/** Prints as JSON the bytes that Connect's workers send to each other, and those of a standalone worker's file. */
public class RecordGroup {
    private static final String URL = "http://größe:8083/";

    public static void main(String[] arguments) throws Exception {
        List<Object> assignments = new ArrayList<>();
        for (Object[] each : new Object[][] {
                {0, -1L, List.of(), List.of(), List.of(), List.of(), 0},
                {0, 12L, List.of("a"), List.of("a-0", "a-1"), List.of(), List.of(), 0},
                {0, Long.MAX_VALUE, List.of("a", "b"), List.of("b-0", "c-3", "größe-0"), List.of("d"),
                    List.of("a-7", "d-0", "d-1"), 300_000},
                {0, 5L, List.of(), List.of(), List.of(), List.of("a-0"), 1},
                {1, 7L, List.of(), List.of(), List.of(), List.of(), 0}}) {
            assignments.add(assignment(each));
        }
        List<Object> files = new ArrayList<>();
        files.add(file(List.of()));
        files.add(file(List.of("[\"c\",{\"filename\":\"a\"}]", "{\"position\":3}")));
        files.add(file(List.of("größe", "")));
        files.add(file(List.of("without a value")));
        List<String> many = new ArrayList<>();
        for (int number = 0; number < 13; number++) {
            many.add("key " + number);
            many.add("value " + number);
        }
        files.add(file(many));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println(new ObjectMapper().writeValueAsString(map("assignments", assignments, "files", files)));
    }

    @SuppressWarnings("unchecked")
    private static Object assignment(Object[] of) {
        short error = ((Integer) of[0]).shortValue();
        long offset = (Long) of[1];
        List<String> connectors = (List<String>) of[2];
        List<String> revoked = (List<String>) of[4];
        int delay = (Integer) of[6];
        List<ConnectorTaskId> tasks = tasks((List<String>) of[3]);
        List<ConnectorTaskId> revokedTasks = tasks((List<String>) of[5]);
        Map<String, Object> bytes = new LinkedHashMap<>();
        bytes.put("0", map(
            "assignment",
            hex(ConnectProtocol.serializeAssignment(
                new ConnectProtocol.Assignment(error, "leader", URL, offset, connectors, tasks))),
            "state", hex(ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState(URL, offset)))));
        for (short version = 1; version <= 2; version++) {
            ExtendedAssignment found = new ExtendedAssignment(
                version, error, "leader", URL, offset, connectors, tasks, revoked, revokedTasks, delay);
            ByteBuffer state = IncrementalCooperativeConnectProtocol.serializeMetadata(
                new ExtendedWorkerState(URL, offset, found), version == 2);
            ByteBuffer idle = IncrementalCooperativeConnectProtocol.serializeMetadata(
                new ExtendedWorkerState(URL, offset, null), version == 2);
            bytes.put(String.valueOf(version), map(
                "assignment", hex(IncrementalCooperativeConnectProtocol.serializeAssignment(found, version == 2)),
                "state", hex(state), "idle", hex(idle)));
        }
        return map("error", error, "leader", "leader", "url", URL, "offset", offset, "connectors", connectors,
            "tasks", of[3], "revoked_connectors", revoked, "revoked_tasks", of[5], "delay_ms", delay, "bytes", bytes);
    }

    private static List<ConnectorTaskId> tasks(List<String> names) {
        List<ConnectorTaskId> found = new ArrayList<>();
        for (String name : names) {
            int at = name.lastIndexOf('-');
            found.add(new ConnectorTaskId(name.substring(0, at), Integer.parseInt(name.substring(at + 1))));
        }
        return found;
    }

    /** Serializes a map as FileOffsetBackingStore does: of raw arrays, whose order is not that of their content. */
    private static Object file(List<String> content) throws Exception {
        Map<byte[], byte[]> raw = new HashMap<>();
        for (int at = 0; at < content.size(); at += 2) {
            byte[] value = at + 1 < content.size() ? content.get(at + 1).getBytes(StandardCharsets.UTF_8) : null;
            raw.put(content.get(at).getBytes(StandardCharsets.UTF_8), value);
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(raw);
        }
        List<Object> entries = new ArrayList<>();
        for (Map.Entry<byte[], byte[]> each : raw.entrySet()) {
            List<Object> entry = new ArrayList<>();
            entry.add(new String(each.getKey(), StandardCharsets.UTF_8));
            entry.add(each.getValue() == null ? null : new String(each.getValue(), StandardCharsets.UTF_8));
            entries.add(entry);
        }
        return map("entries", entries, "bytes", HexFormat.of().formatHex(bytes.toByteArray()));
    }

    private static String hex(ByteBuffer buffer) {
        byte[] found = new byte[buffer.remaining()];
        buffer.get(found);
        return HexFormat.of().formatHex(found);
    }

    private static Map<String, Object> map(Object... entries) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int at = 0; at < entries.length; at += 2) {
            found.put((String) entries[at], entries[at + 1]);
        }
        return found;
    }
}
