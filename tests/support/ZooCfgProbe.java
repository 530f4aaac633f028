import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import org.apache.zookeeper.server.quorum.QuorumPeerConfig;

/** Reads each zoo.cfg named on standard input as QuorumPeerMain does: its verdict, or the error that ends the start. */
public class ZooCfgProbe {
    static String address(InetSocketAddress address) {
        return address == null ? "none" : address.getAddress().getHostAddress().replace("0:0:0:0:0:0:0:1", "[::1]") + ":" + address.getPort();
    }

    static String verdict(String path) throws Exception {
        QuorumPeerConfig config = new QuorumPeerConfig();
        config.parse(path);
        long id = config.getServerId();
        List<String> words = new ArrayList<>();
        if (!config.isDistributed()) {
            words.add("alone");
        } else if (!config.getQuorumVerifier().getAllMembers().containsKey(id)) {
            words.add("not-a-member"); // QuorumPeer.start throws: the status is 1
        } else {
            words.add(config.getPeerType().toString().toLowerCase());
            words.add("voters=" + config.getQuorumVerifier().getVotingMembers().size());
            words.add("observers=" + config.getQuorumVerifier().getObservingMembers().size());
            words.add("version=" + Long.toHexString(config.getQuorumVerifier().getVersion()));
        }
        words.add("client=" + address(config.getClientPortAddress()));
        words.add("secure=" + address(config.getSecureClientPortAddress()));
        words.add("id=" + id);
        words.add("tick=" + config.getTickTime());
        words.add("sessions=" + config.getMinSessionTimeout() + "-" + config.getMaxSessionTimeout());
        words.add("limits=" + config.getInitLimit() + "/" + config.getSyncLimit());
        words.add("connections=" + config.getMaxClientCnxns());
        words.add("purge=" + config.getSnapRetainCount() + "/" + config.getPurgeInterval());
        words.add("dataDir=" + config.getDataDir().getPath().replace(new File(path).getParent(), "{dir}"));
        return String.join(" ", words);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            QuorumPeerConfig.setStandaloneEnabled(true); // these are static
            QuorumPeerConfig.setReconfigEnabled(false);
            System.getProperties().keySet().removeIf(name -> name.toString().startsWith("zookeeper."));
            String answer;
            try {
                answer = verdict(path);
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                answer = "refused " + cause.getMessage();
            }
            System.out.println(path + "\t" + answer.replace('\n', ' '));
        }
    }
}
