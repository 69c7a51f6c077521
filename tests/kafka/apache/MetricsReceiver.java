import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/** What a broker needs to take the metrics of clients: writes each push into a file that is named after the client. */
public class MetricsReceiver implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private Path directory;

    @Override
    public void configure(Map<String, ?> configs) {
        directory = Path.of((String) configs.get("metrics.receiver.directory"));
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this;
    }

    @Override
    public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        String name = String.format("%06d,%s,%s,%b", NUMBERS.incrementAndGet(),
            context.authorizableRequestContext().clientId(), payload.clientInstanceId(), payload.isTerminating());
        try {
            Path written = Files.write(directory.resolve(name + ".part"), bytes);
            Files.move(written, directory.resolve(name + ".otlp"), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
