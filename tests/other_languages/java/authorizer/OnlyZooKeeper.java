import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Leaves out the invocations of a test with KRaft: they would run Apache's brokers. */
public class OnlyZooKeeper implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        return context.getDisplayName().contains("kraft")
            ? ConditionEvaluationResult.disabled("KRaft")
            : ConditionEvaluationResult.enabled("ZooKeeper");
    }
}
