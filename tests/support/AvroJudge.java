import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.Incompatibility;

/** Reads pairs of schemas from standard input and writes what Apache's library says of each. */
public class AvroJudge {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        ArrayNode answers = mapper.createArrayNode();
        for (JsonNode pair : mapper.readTree(System.in)) {
            ObjectNode answer = answers.addObject();
            try {
                Schema reader = new Schema.Parser().parse(pair.get("reader").asText());
                Schema writer = new Schema.Parser().parse(pair.get("writer").asText());
                answer.put("text", reader.toString());
                var result = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult();
                answer.put("compatible", result.getIncompatibilities().isEmpty());
                ArrayNode found = answer.putArray("found");
                for (Incompatibility each : result.getIncompatibilities()) {
                    found.addArray().add(each.getType().toString()).add(each.getLocation()).add(each.getMessage());
                }
            } catch (RuntimeException error) {
                answer.put("refused", String.valueOf(error.getMessage()).split("\n")[0]);
            }
        }
        mapper.writeValue(System.out, answers);
    }
}
