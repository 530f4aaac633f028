import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "class version hex" and answers each with a line "hex json": the message written again by Apache Kafka,
 * and what it says.
 */
public class MessageEcho {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.println(echo(words[0], Short.parseShort(words[1]), words[2]));
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                out.println("error " + cause.toString().replace('\n', ' '));
            }
        }
        out.flush();
    }

    private static String echo(String name, short version, String hex) throws Exception {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            throw new UnsupportedVersionException("not in this release");
        }
        ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes remain");
        }
        JsonNode json = (JsonNode) Class.forName(name + "JsonConverter")
            .getMethod("write", type, short.class)
            .invoke(null, message, version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        byte[] bytes = new byte[message.size(cache, version)];
        message.write(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), cache, version);
        return HexFormat.of().formatHex(bytes) + " " + json;
    }
}
