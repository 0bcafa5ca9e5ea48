import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.formats.json.JsonDeserializationSchema;
import org.apache.flink.formats.json.JsonSerializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * From a topic to a topic, exactly once: one-second windows by key, on Flink's own connector and JSON formats. Arguments
 * are name=value. It runs until it is ended.
 */
public final class Topics {
  private Topics() {}

  public static final class Row {
    public String store;
    public long at;
    public long amount;
  }

  public static final class Result {
    public String store;
    public long window_start;
    public long items;
    public long revenue;
    public long largest;
  }

  /** Count, sum, maximum. */
  public static final class Fold implements AggregateFunction<Row, long[], long[]> {
    @Override
    public long[] createAccumulator() {
      return new long[] {0, 0, Long.MIN_VALUE};
    }

    @Override
    public long[] add(Row row, long[] sums) {
      sums[0] += 1;
      sums[1] += row.amount;
      sums[2] = Math.max(sums[2], row.amount);
      return sums;
    }

    @Override
    public long[] getResult(long[] sums) {
      return sums;
    }

    @Override
    public long[] merge(long[] one, long[] other) {
      return new long[] {one[0] + other[0], one[1] + other[1], Math.max(one[2], other[2])};
    }
  }

  public static final class Close extends ProcessWindowFunction<long[], Result, String, TimeWindow> {
    @Override
    public void process(String key, Context context, Iterable<long[]> found, Collector<Result> out) {
      long[] sums = found.iterator().next();
      Result result = new Result();
      result.store = key;
      result.window_start = context.window().getStart();
      result.items = sums[0];
      result.revenue = sums[1];
      result.largest = sums[2];
      out.collect(result);
    }
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> args = new HashMap<>();
    for (String argument : arguments) {
      args.put(argument.substring(0, argument.indexOf('=')), argument.substring(argument.indexOf('=') + 1));
    }
    Configuration settings = new Configuration();
    settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, Path.of(args.get("home"), "checkpoints").toUri().toString());
    settings.set(StateBackendOptions.STATE_BACKEND, "hashmap");
    int parallelism = Integer.parseInt(args.get("parallelism"));
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    env.getConfig().enableObjectReuse();
    env.enableCheckpointing(Long.parseLong(args.get("checkpoint_ms")));
    KafkaSource<Row> source =
        KafkaSource.<Row>builder()
            .setBootstrapServers(args.get("servers"))
            .setTopics(args.get("in"))
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new JsonDeserializationSchema<>(Row.class))
            .setProperty("isolation.level", "read_committed")
            .build();
    WatermarkStrategy<Row> times =
        WatermarkStrategy.<Row>forBoundedOutOfOrderness(Duration.ofMillis(Long.parseLong(args.get("lateness_ms"))))
            .withTimestampAssigner((row, written) -> row.at);
    KafkaSink<Result> sink =
        KafkaSink.<Result>builder()
            .setBootstrapServers(args.get("servers"))
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<Result>builder()
                    .setTopic(args.get("out"))
                    .setKeySerializationSchema((Result result) -> result.store.getBytes(StandardCharsets.UTF_8))
                    .setValueSerializationSchema(new JsonSerializationSchema<>())
                    .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setProperty("transaction.timeout.ms", "600000") // its own hour is more than a broker takes
            .build();
    env.fromSource(source, times, "rows")
        .keyBy(row -> row.store)
        .window(TumblingEventTimeWindows.of(Duration.ofMillis(Long.parseLong(args.get("window_ms")))))
        .aggregate(new Fold(), new Close())
        .sinkTo(sink);
    env.execute("topics");
  }
}
