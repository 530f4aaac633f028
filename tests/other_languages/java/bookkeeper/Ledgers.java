import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** Ledgers of a hundred entries, each on two bookies: written without end, or read back.
 *  Arguments: METADATA-URI write | METADATA-URI read ID ... */
public class Ledgers {
    private static final BookKeeper.DigestType DIGEST = BookKeeper.DigestType.CRC32C;
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);
    private static final int ENTRIES = 100;

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setZkTimeout(10000);
        BookKeeper bookKeeper = new BookKeeper(configuration);
        if (arguments[1].equals("write")) {
            for (int number = 0; ; number++) {
                write(bookKeeper, number);
            }
        }
        for (int place = 2; place < arguments.length; place++) {
            read(bookKeeper, Long.parseLong(arguments[place]));
        }
        System.exit(0);
    }

    /** Prints the id of a ledger whose entries are all acknowledged, and which is closed. */
    private static void write(BookKeeper bookKeeper, int number) throws Exception {
        try (LedgerHandle ledger = bookKeeper.createLedger(2, 2, DIGEST, PASSWORD)) {
            for (int entry = 0; entry < ENTRIES; entry++) {
                ledger.addEntry((ledger.getId() + " " + entry).getBytes(StandardCharsets.UTF_8));
            }
            ledger.close();
            System.out.println("written " + ledger.getId());
        } catch (org.apache.bookkeeper.client.BKException problem) {
            System.out.println("not written: " + problem);
            Thread.sleep(100);
        }
    }

    /** Prints the id of a ledger that has each entry as it was written. */
    private static void read(BookKeeper bookKeeper, long id) throws Exception {
        try (LedgerHandle ledger = bookKeeper.openLedger(id, DIGEST, PASSWORD)) {
            int count = 0;
            Enumeration<LedgerEntry> entries = ledger.readEntries(0, ledger.getLastAddConfirmed());
            for (; entries.hasMoreElements(); count++) {
                String text = new String(entries.nextElement().getEntry(), StandardCharsets.UTF_8);
                if (!text.equals(id + " " + count)) {
                    throw new IllegalStateException("ledger " + id + " has at " + count + ": " + text);
                }
            }
            System.out.println((count == ENTRIES ? "read " : count + " entries only: ") + id);
        }
    }
}
