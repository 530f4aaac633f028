// One application of Kafka Streams with what most have: counts of words, joins, windows, sessions, a store that is
// asked over HTTP, and standbys. Arguments: a file of properties, and a port for its questions.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.HostInfo;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

public class Shop {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Duration SIZE = Duration.ofSeconds(10);

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            properties.load(file);
        }
        HostInfo self = new HostInfo("127.0.0.1", Integer.parseInt(args[1]));
        StreamsBuilder builder = new StreamsBuilder();
        countWords(builder);
        join(builder);
        countInWindows(builder);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        AtomicLong restored = new AtomicLong();
        streams.setGlobalStateRestoreListener(counting(restored));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        serve(streams, self, restored);
        streams.start();
    }

    /** "text" in words, which a topic for repartitioning brings to the store "words". */
    private static void countWords(StreamsBuilder builder) {
        builder.stream("text", Consumed.with(TEXT, TEXT))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", TEXT, TEXT))
            .count(Materialized.<String, Long, KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("words")
                .withKeySerde(TEXT).withValueSerde(Serdes.Long()))
            .toStream().mapValues(String::valueOf).to("word-counts", Produced.with(TEXT, TEXT));
    }

    /** "orders" with the table "customers", and with "payments" of the same key within ten seconds. */
    private static void join(StreamsBuilder builder) {
        KStream<String, String> orders = builder.stream("orders", Consumed.with(TEXT, TEXT));
        KTable<String, String> customers = builder.table("customers", Consumed.with(TEXT, TEXT), Materialized.as("customers"));
        orders.join(customers, (order, customer) -> order + "," + customer, Joined.with(TEXT, TEXT, TEXT))
            .to("named-orders", Produced.with(TEXT, TEXT));
        orders.join(builder.stream("payments", Consumed.with(TEXT, TEXT)), (order, payment) -> order + "," + payment,
                JoinWindows.ofTimeDifferenceAndGrace(SIZE, Duration.ofDays(1)), StreamJoined.with(TEXT, TEXT, TEXT).withName("paid"))
            .to("paid-orders", Produced.with(TEXT, TEXT));
    }

    /** "orders" in tumbling windows and in sessions, each with its final count alone, and in hopping windows. */
    private static void countInWindows(StreamsBuilder builder) {
        var orders = builder.stream("orders", Consumed.with(TEXT, TEXT)).groupByKey(Grouped.with(TEXT, TEXT));
        orders.windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE)).count(Materialized.as("tumbling"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("tumbling-final"))
            .toStream((window, count) -> name(window)).mapValues(String::valueOf).to("tumbling-counts", Produced.with(TEXT, TEXT));
        orders.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, Duration.ofDays(1)).advanceBy(SIZE.dividedBy(2))).count(Materialized.as("hopping"))
            .toStream((window, count) -> name(window)).mapValues(String::valueOf).to("hopping-counts", Produced.with(TEXT, TEXT));
        orders.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(3))).count(Materialized.as("sessions"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("sessions-final"))
            .toStream((window, count) -> name(window)).mapValues(String::valueOf).to("session-counts", Produced.with(TEXT, TEXT));
    }

    private static String name(Windowed<String> window) {
        return window.key() + "@" + window.window().start() + "-" + window.window().end();
    }

    private static StateRestoreListener counting(AtomicLong restored) {
        return new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long first, long end) {
                System.out.println("restoring " + store + " " + partition + " " + first + " " + end);
            }

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
                restored.addAndGet(count);
            }

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long total) {
                System.out.println("restored " + store + " " + partition + " " + total);
            }
        };
    }

    /**
     * /state: the state of the application and how many records were restored. /word/WORD: its count, from the
     * instance that is responsible. /local/WORD: the count here, from a standby too. /hosts/WORD: both places.
     */
    private static void serve(KafkaStreams streams, HostInfo self, AtomicLong restored) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(self.host(), self.port()), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            String[] path = exchange.getRequestURI().getPath().split("/");
            try {
                answer(exchange, 200, switch (path[1]) {
                    case "state" -> streams.state() + " " + restored.get();
                    case "word" -> count(streams, self, path[2]);
                    case "local" -> String.valueOf(store(streams).get(path[2]));
                    default -> hosts(streams, path[2]).activeHost().port() + " " + hosts(streams, path[2]).standbyHosts().stream()
                        .map(host -> String.valueOf(host.port())).sorted().toList();
                });
            } catch (Exception error) {
                answer(exchange, 503, error.toString());
            }
        });
        server.start();
    }

    private static String count(KafkaStreams streams, HostInfo self, String word) throws Exception {
        HostInfo active = hosts(streams, word).activeHost();
        if (active.equals(self)) {
            return String.valueOf(store(streams).get(word));
        }
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + active.host() + ":" + active.port() + "/local/" + word)).build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IOException(response.body());
        }
        return response.body();
    }

    private static KeyQueryMetadata hosts(KafkaStreams streams, String word) {
        return streams.queryMetadataForKey("words", word, TEXT.serializer());
    }

    private static ReadOnlyKeyValueStore<String, Long> store(KafkaStreams streams) {
        return streams.store(StoreQueryParameters.fromNameAndType("words", QueryableStoreTypes.<String, Long>keyValueStore()).enableStaleStores());
    }

    private static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
