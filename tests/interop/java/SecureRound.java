import java.io.FileReader;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * Administration, a transaction and a group over one secured connection: the settings of the client are in the file
 * SETTINGS; `kerberos.configuration` and `token.file` in it are for this program.
 *
 * <p>With ROUNDS above 1, it produces again in pauses of PAUSE_MS, over the same connections.
 */
public class SecureRound {
    private static final long PATIENCE_MS = 30_000;

    /** Reads a token with a life of an hour from a file: 2.8 has no handler of its own for that. */
    public static class FileTokens implements AuthenticateCallbackHandler {
        static volatile String file;

        @Override
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
        }

        @Override
        public void close() {
        }

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) callback).token(new FileToken(file));
                } else if (!callback.getClass().getSimpleName().equals("SaslExtensionsCallback")) {
                    throw new UnsupportedCallbackException(callback);
                }
            }
        }
    }

    private static class FileToken implements OAuthBearerToken {
        private final String text;
        private final long since = System.currentTimeMillis();

        FileToken(String file) {
            try {
                text = Files.readString(Path.of(file)).trim();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }

        @Override
        public String value() {
            return text;
        }

        @Override
        public Set<String> scope() {
            return Collections.emptySet();
        }

        @Override
        public long lifetimeMs() {
            return since + 3_600_000;
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return since;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = new FileReader(arguments[0])) {
            settings.load(reader);
        }
        String topic = arguments[1];
        int rounds = Integer.parseInt(arguments[2]);
        long pause = Long.parseLong(arguments[3]);
        Object kerberos = settings.remove("kerberos.configuration");
        if (kerberos != null) {
            System.setProperty("java.security.krb5.conf", (String) kerberos);
        }
        Object token = settings.remove("token.file");
        if (token != null) {
            FileTokens.file = (String) token;
            settings.put("sasl.login.callback.handler.class", FileTokens.class);
        }
        String failure = null;
        try {
            round(settings, topic, rounds, pause);
        } catch (java.util.concurrent.ExecutionException error) {
            failure = error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
        } catch (org.apache.kafka.common.KafkaException error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            failure = cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
        if (failure != null) {
            System.out.println("failed " + failure);
        }
    }

    private static void round(Properties settings, String topic, int rounds, long pause) throws Exception {
        try (AdminClient admin = AdminClient.create(settings)) {
            admin.createTopics(Collections.singletonList(new NewTopic(topic, 1, (short) 1))).all().get();
            System.out.println("created " + admin.listTopics().names().get().contains(topic));
        }
        Properties producing = new Properties();
        producing.putAll(settings);
        producing.put("transactional.id", "of-" + topic);
        producing.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producing.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing)) {
            producer.initTransactions();
            for (int round = 0; round < rounds; round++) {
                if (round > 0) {
                    Thread.sleep(pause);
                }
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, "value-" + round)).get();
                producer.commitTransaction();
            }
        }
        System.out.println("committed " + rounds);
        Properties consuming = new Properties();
        consuming.putAll(settings);
        consuming.put("group.id", "of-" + topic);
        consuming.put("isolation.level", "read_committed");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", "false");
        consuming.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        consuming.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        int read = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming)) {
            consumer.subscribe(Collections.singletonList(topic));
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (read < rounds && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<?, ?> record : consumer.poll(Duration.ofMillis(100))) {
                    read++;
                }
            }
            consumer.commitSync();
        }
        System.out.println("read " + read);
    }
}
