import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Loads each data directory named on standard input as a starting server does: its last zxid, or the error. */
public class TransactionLogProbe {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String dir = in.readLine(); dir != null; dir = in.readLine()) {
            String answer;
            try {
                FileTxnSnapLog files = new FileTxnSnapLog(new File(dir), new File(dir));
                long zxid = files.restore(
                    new DataTree(), new ConcurrentHashMap<>(), (header, transaction, digest) -> { });
                files.close();
                answer = Long.toString(zxid);
            } catch (Throwable error) {
                answer = error.getClass().getSimpleName() + ": " + error.getMessage();
            }
            System.out.println(dir + "\t" + answer.replace('\n', ' '));
        }
    }
}
