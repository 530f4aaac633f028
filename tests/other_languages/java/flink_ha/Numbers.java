import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/** A job that writes numbers to files, a few at a time; each checkpoint closes a file. Arguments: FOLDER COUNT RATE */
public class Numbers {
    public static void main(String[] arguments) throws Exception {
        GeneratorFunction<Long, String> number = String::valueOf;
        DataGeneratorSource<String> numbers = new DataGeneratorSource<>(
                number,
                Long.parseLong(arguments[1]),
                RateLimiterStrategy.perSecond(Double.parseDouble(arguments[2])),
                Types.STRING);
        FileSink<String> files = FileSink.forRowFormat(new Path(arguments[0]), new SimpleStringEncoder<String>())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        environment.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers").uid("numbers").sinkTo(files).uid("files");
        environment.execute("numbers");
    }
}
