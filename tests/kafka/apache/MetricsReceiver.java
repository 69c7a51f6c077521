import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/** What a broker needs to take the metrics of clients: hands each push on to a port of the test. */
public class MetricsReceiver implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
    private int port;

    @Override
    public void configure(Map<String, ?> configs) {
        port = Integer.parseInt((String) configs.get("metrics.receiver.port"));
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
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            DataOutputStream to = new DataOutputStream(socket.getOutputStream());
            write(to, context.authorizableRequestContext().clientId().getBytes(StandardCharsets.UTF_8));
            write(to, payload.clientInstanceId().toString().getBytes(StandardCharsets.UTF_8));
            write(to, Boolean.toString(payload.isTerminating()).getBytes(StandardCharsets.UTF_8));
            write(to, bytes);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void write(DataOutputStream to, byte[] part) throws IOException {
        to.writeInt(part.length);
        to.write(part);
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
