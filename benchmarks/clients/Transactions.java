// Consecutive transactions of the JVM client: a warm-up, then measured transactions. Java runs this file from source.
// Arguments: servers, topic, records per transaction, warm-up in seconds, measured seconds, bytes per value, then
// name=value of the producer.

import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    public static void main(String[] given) {
        var options = new Properties();
        options.putAll(Map.of("bootstrap.servers", given[0], "transactional.id", "benchmark-" + UUID.randomUUID()));
        for (int i = 6; i < given.length; i++) {
            options.put(given[i].substring(0, given[i].indexOf('=')), given[i].substring(given[i].indexOf('=') + 1));
        }
        int each = Integer.parseInt(given[2]);
        double warmUp = Double.parseDouble(given[3]), seconds = Double.parseDouble(given[4]);
        byte[] value = new byte[Integer.parseInt(given[5])];
        var random = new Random(1);
        try (var producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            long sent = 0, counted = 0;
            double warm = System.nanoTime() / 1e9 + warmUp, began = 0;
            while (true) {
                double now = System.nanoTime() / 1e9;
                if (began == 0 && now >= warm) {
                    began = now;
                } else if (began > 0 && now >= began + seconds) {
                    System.out.printf("%d records, %d in %.6f s%n", sent, counted, now - began);
                    return;
                }
                producer.beginTransaction();
                for (int i = 0; i < each; i++) {
                    byte[] key = new byte[16];
                    random.nextBytes(key);
                    random.nextBytes(value);
                    producer.send(new ProducerRecord<>(given[1], key, value.clone()));
                }
                producer.commitTransaction();
                sent += each;
                counted += began > 0 ? each : 0;
            }
        }
    }
}
