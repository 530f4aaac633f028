import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/** A table of numbers with a region on each of two servers. Arguments: HBASE-SITE create | write | read */
public class Rows {
    private static final TableName NUMBERS = TableName.valueOf("numbers");
    private static final byte[] FAMILY = Bytes.toBytes("f");

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = HBaseConfiguration.create();
        configuration.addResource(new Path(arguments[0]));
        try (Connection connection = ConnectionFactory.createConnection(configuration)) {
            switch (arguments[1]) {
                case "create":
                    create(connection);
                    break;
                case "write":
                    write(connection);
                    break;
                default:
                    read(connection);
            }
        }
        System.exit(0);
    }

    private static void create(Connection connection) throws Exception {
        try (Admin admin = connection.getAdmin()) {
            admin.createTable(
                    TableDescriptorBuilder.newBuilder(NUMBERS)
                            .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
                            .build(),
                    new byte[][] {Bytes.toBytes("5")});
        }
        System.out.println("created");
    }

    /** Prints each number that is acknowledged; reversed digits bring them to both regions in turn. */
    private static void write(Connection connection) throws Exception {
        try (Table table = connection.getTable(NUMBERS)) {
            for (int number = 0; ; number++) {
                byte[] row = Bytes.toBytes(new StringBuilder().append(number).reverse().toString());
                table.put(new Put(row).addColumn(FAMILY, Bytes.toBytes("n"), Bytes.toBytes(String.valueOf(number))));
                System.out.println("written " + number);
                Thread.sleep(5);
            }
        }
    }

    private static void read(Connection connection) throws Exception {
        try (Table table = connection.getTable(NUMBERS);
                ResultScanner scanner = table.getScanner(new Scan())) {
            for (Result result : scanner) {
                System.out.println("read " + Bytes.toString(result.getValue(FAMILY, Bytes.toBytes("n"))));
            }
        }
    }
}
