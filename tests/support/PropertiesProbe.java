import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.utils.Utils;

/** Prints the names and values of properties files, and the options of their login modules, as Apache Kafka reads them. */
public class PropertiesProbe {
    public static void main(String[] paths) throws Exception {
        for (String path : paths) {
            Properties properties = Utils.loadProps(path);
            Map<String, Object> all = new TreeMap<>();
            properties.forEach((name, value) -> all.put((String) name, value));
            String jaas = properties.getProperty("sasl.jaas.config");
            if (jaas != null) {
                all.remove("sasl.jaas.config");
                Map<String, Password> configs = Map.of("sasl.jaas.config", new Password(jaas));
                JaasContext.loadClientContext(configs).configurationEntries().get(0).getOptions()
                    .forEach((name, value) -> all.put("jaas " + name, value));
            }
            StringBuilder line = new StringBuilder("read");
            all.forEach((name, value) -> line.append(' ').append(encode(name)).append(':').append(encode((String) value)));
            System.out.println(line);
        }
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
