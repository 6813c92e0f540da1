import java.util.function.BiConsumer;
import org.apache.kafka.streams.StreamsBuilder;

/** Copies a topic. */
public class Pipe implements BiConsumer<StreamsBuilder, String> {
    @Override
    public void accept(StreamsBuilder builder, String prefix) {
        builder.stream(prefix + "pipe-input").to(prefix + "pipe-output");
    }
}
