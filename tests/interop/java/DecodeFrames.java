import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import kafka.network.RequestConvertToJson;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/** Reads lines of "REQUEST RESPONSE" (frames in hex, "-" for no response), prints what Kafka reads in both as JSON. */
public class DecodeFrames {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] frames = line.split(" ");
            ByteBuffer request = ByteBuffer.wrap(HexFormat.of().parseHex(frames[0]));
            RequestHeader header = RequestHeader.parse(request);
            ObjectNode decoded = JSON.createObjectNode();
            AbstractRequest parsed = AbstractRequest.parseRequest(header.apiKey(), header.apiVersion(), request).request;
            decoded.set("request", RequestConvertToJson.request(parsed));
            if (!frames[1].equals("-")) {
                ByteBuffer response = ByteBuffer.wrap(HexFormat.of().parseHex(frames[1]));
                decoded.set("response", response(header, response));
            }
            ObjectNode printed = JSON.createObjectNode();
            printed.put("api_key", header.apiKey().id).put("api_name", header.apiKey().name);
            printed.put("api_version", header.apiVersion()).put("client_id", header.clientId());
            printed.put("correlation_id", header.correlationId()).set("decoded", decoded);
            System.out.println(JSON.writeValueAsString(printed));
        }
    }

    static JsonNode response(RequestHeader header, ByteBuffer buffer) {
        AbstractResponse response = AbstractResponse.parseResponse(buffer, header);
        return RequestConvertToJson.response(response, header.apiVersion());
    }
}
