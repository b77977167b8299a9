// A member of a group until its input ends, on Kafka's own Java consumer. Says what it has and gets, a JSON object a
// line, as python/mixed_member.py does.
//
//   java -cp 'KAFKA-JARS/*:.' MixedMember HOST:PORT GROUP TOPIC

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class MixedMember {
    public static void main(String[] arguments) throws Exception {
        var over = new AtomicBoolean();
        var input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException closed) {
                // As good as its end.
            }
            over.set(true);
        });
        input.setDaemon(true);
        input.start();
        var owned = new TreeSet<Integer>();
        var listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(place -> owned.add(place.partition()));
                say("{\"assigned\": " + owned + "}");
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                partitions.forEach(place -> owned.remove(place.partition()));
                say("{\"assigned\": " + owned + "}");
            }
        };
        var config = Map.<String, Object>of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "group.protocol", "classic",
            "auto.offset.reset", "earliest",
            "session.timeout.ms", 6000,
            "heartbeat.interval.ms", 500,
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(config)) {
            consumer.subscribe(List.of(arguments[2]), listener);
            while (!over.get()) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    say("{\"partition\": " + record.partition() + ", \"offset\": " + record.offset() + "}");
                }
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
