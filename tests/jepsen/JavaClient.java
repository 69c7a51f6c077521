import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactional producers of the Java client. Reads commands from standard input, and answers each with a line. */
public class JavaClient {
    private static final int CALL_TIMEOUT_MS = 8_000;
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();
    private static String[] options;

    public static void main(String[] arguments) throws Exception {
        options = arguments;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            THREADS.computeIfAbsent(words[0], id -> Executors.newSingleThreadExecutor()).submit(() -> answer(words));
        }
        System.exit(0);
    }

    private static void answer(String[] words) {
        String answer = "ok";
        try {
            run(words);
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException
                | AuthorizationException error) {
            answer = "unknown " + described(error);
        } catch (KafkaException error) {
            answer = (words[1].equals("commit") ? "refused " : "unknown ") + described(error);
        } catch (RuntimeException error) {
            answer = "unknown " + described(error);
        }
        synchronized (System.out) {
            System.out.println(words[0] + " " + answer);
            System.out.flush();
        }
    }

    private static void run(String[] words) {
        KafkaProducer<String, String> producer = PRODUCERS.get(words[0]);
        switch (words[1]) {
            case "start" -> {
                producer = create(words[0], words[2]);
                PRODUCERS.put(words[0], producer);
                retried(producer::initTransactions);
            }
            case "begin" -> producer.beginTransaction();
            case "send" ->
                producer.send(new ProducerRecord<>(options[1], Integer.valueOf(words[2]), words[3], words[4]));
            case "commit" -> retried(producer::commitTransaction);
            case "abort" -> retried(producer::abortTransaction);
            case "close" -> PRODUCERS.remove(words[0]).close(Duration.ofSeconds(5));
            default -> throw new IllegalArgumentException(words[1]);
        }
    }

    /** Repeats a call after each timeout, as the documentation of the client recommends. The harness bounds the time. */
    private static void retried(Runnable call) {
        for (int attempt = 1; ; attempt++) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (attempt == 4) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }

    private static KafkaProducer<String, String> create(String clientId, String transactionalId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", options[0]);
        properties.put("client.id", clientId);
        properties.put("transactional.id", transactionalId);
        properties.put("request.timeout.ms", options[2]);
        properties.put("delivery.timeout.ms", options[3]);
        properties.put("transaction.timeout.ms", options[4]);
        properties.put("max.block.ms", CALL_TIMEOUT_MS);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private static String described(Exception error) {
        return (error.getClass().getSimpleName() + ": " + error.getMessage()).replace('\n', ' ');
    }
}
