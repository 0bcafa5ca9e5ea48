import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.Stores;

/**
 * From a topic to a topic, exactly once (v2): one-second windows by key. Arguments are name=value. It runs until it is
 * ended.
 */
public final class Topics {
  private Topics() {}

  public static final class Row {
    public String store;
    public long at;
    public long amount;
  }

  public static final class Sums {
    public long items = 0;
    public long revenue = 0;
    public long largest = Long.MIN_VALUE;

    Sums with(Row row) {
      Sums found = new Sums();
      found.items = items + 1;
      found.revenue = revenue + row.amount;
      found.largest = Math.max(largest, row.amount);
      return found;
    }
  }

  public static final class Result {
    public String store;
    public long window_start;
    public long items;
    public long revenue;
    public long largest;

    static Result of(String store, long start, Sums sums) {
      Result found = new Result();
      found.store = store;
      found.window_start = start;
      found.items = sums.items;
      found.revenue = sums.revenue;
      found.largest = sums.largest;
      return found;
    }
  }

  static <T> Serde<T> json(Class<T> kind) {
    ObjectMapper mapper = new ObjectMapper();
    ObjectReader reader = mapper.readerFor(kind);
    ObjectWriter writer = mapper.writerFor(kind);
    return Serdes.serdeFrom(
        (topic, value) -> {
          try {
            return value == null ? null : writer.writeValueAsBytes(value);
          } catch (IOException problem) {
            throw new UncheckedIOException(problem);
          }
        },
        (topic, bytes) -> {
          try {
            return bytes == null ? null : reader.readValue(bytes);
          } catch (IOException problem) {
            throw new UncheckedIOException(problem);
          }
        });
  }

  /** State is read and written with every row, so not as JSON. */
  static Serde<Sums> numbers() {
    return Serdes.serdeFrom(
        (topic, sums) ->
            sums == null
                ? null
                : ByteBuffer.allocate(24).putLong(sums.items).putLong(sums.revenue).putLong(sums.largest).array(),
        (topic, bytes) -> {
          if (bytes == null) {
            return null;
          }
          ByteBuffer known = ByteBuffer.wrap(bytes);
          Sums sums = new Sums();
          sums.items = known.getLong();
          sums.revenue = known.getLong();
          sums.largest = known.getLong();
          return sums;
        });
  }

  public static void main(String[] arguments) {
    Map<String, String> args = new HashMap<>();
    for (String argument : arguments) {
      args.put(argument.substring(0, argument.indexOf('=')), argument.substring(argument.indexOf('=') + 1));
    }
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + args.get("in"));
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args.get("servers"));
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args.get("parallelism"));
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args.get("checkpoint_ms"));
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256L << 20);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args.get("home"));
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    // Windows that are over are looked for with each row, not once a second: the last row of all closes the last ones.
    settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
    Duration size = Duration.ofMillis(Long.parseLong(args.get("window_ms")));
    Duration grace = Duration.ofMillis(Long.parseLong(args.get("lateness_ms")));
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(
            args.get("in"),
            Consumed.with(Serdes.String(), json(Row.class))
                .withTimestampExtractor((record, newest) -> ((Row) record.value()).at))
        .groupByKey(Grouped.with(Serdes.String(), json(Row.class)))
        .windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
        .emitStrategy(EmitStrategy.onWindowClose())
        .aggregate(
            Sums::new,
            (store, row, sums) -> sums.with(row),
            Materialized.<String, Sums>as(Stores.inMemoryWindowStore("sums", size.plus(grace).multipliedBy(4), size, false))
                .withKeySerde(Serdes.String())
                .withValueSerde(numbers())
                .withCachingEnabled())
        .toStream()
        .map((key, sums) -> KeyValue.pair(key.key(), Result.of(key.key(), key.window().start(), sums)))
        .to(args.get("out"), Produced.with(Serdes.String(), json(Result.class)));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setUncaughtExceptionHandler(
        problem -> {
          problem.printStackTrace();
          Runtime.getRuntime().halt(1);
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
