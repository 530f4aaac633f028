import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.solr.embedded.JettyConfig;
import org.apache.solr.embedded.JettySolrRunner;

/** A node of SolrCloud until it is killed. Arguments: SOLR-HOME PORT; the system property zkHost names the ensemble. */
public class Node {
    public static void main(String[] arguments) throws Exception {
        JettyConfig config = new JettyConfig.Builder().setContext("/solr").setPort(Integer.parseInt(arguments[1])).build();
        new JettySolrRunner(arguments[0], new Properties(), config).start();
        System.out.println("ready");
        new CountDownLatch(1).await();
    }
}
