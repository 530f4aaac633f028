import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** OpenSearch from its jars, without an installation: a node of its own on two ports. */
public class OpenSearchNode extends Node {
  OpenSearchNode(Settings settings) {
    super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"), List.of(Netty4Plugin.class), true);
  }

  public static void main(String[] arguments) throws Exception {
    Settings settings = Settings.builder()
        .put("path.home", arguments[0])
        .put("http.port", arguments[1])
        .put("transport.port", arguments[2])
        .put("discovery.type", "single-node")
        .put("cluster.name", "tests")
        .put("node.name", "node")
        .put("http.type", "netty4")
        .put("transport.type", "netty4")
        .put("cluster.routing.allocation.disk.threshold_enabled", false)
        .build();
    new OpenSearchNode(settings).start();
    System.out.println("started");
    Thread.sleep(Long.MAX_VALUE);
  }
}
