import java.util.concurrent.CountDownLatch;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;

/** A provider that says its name, or a consumer that asks without end.
 *  Arguments: REGISTRY provider NAME PORT | REGISTRY consumer */
public class Greetings {
    public interface Greeter {
        String name();
    }

    public static void main(String[] arguments) throws Exception {
        ApplicationConfig application = new ApplicationConfig(arguments[1]);
        application.setQosEnable(false);
        DubboBootstrap bootstrap = DubboBootstrap.getInstance().application(application);
        bootstrap.registry(new RegistryConfig(arguments[0]));
        if (arguments[1].equals("provider")) {
            provide(bootstrap, arguments[2], Integer.parseInt(arguments[3]));
        } else {
            ask(bootstrap);
        }
    }

    private static void provide(DubboBootstrap bootstrap, String name, int port) throws Exception {
        ServiceConfig<Greeter> service = new ServiceConfig<>();
        service.setInterface(Greeter.class);
        service.setRef(() -> name);
        ProtocolConfig protocol = new ProtocolConfig("dubbo", port);
        protocol.setHost("127.0.0.1");
        bootstrap.protocol(protocol).service(service).start();
        System.out.println("ready " + name);
        new CountDownLatch(1).await();
    }

    private static void ask(DubboBootstrap bootstrap) throws Exception {
        ReferenceConfig<Greeter> reference = new ReferenceConfig<>();
        reference.setInterface(Greeter.class);
        reference.setTimeout(3000);
        bootstrap.reference(reference).start();
        Greeter greeter = reference.get();
        for (;;) {
            try {
                System.out.println("answer of " + greeter.name());
            } catch (org.apache.dubbo.rpc.RpcException problem) {
                System.out.println("no answer: " + problem.getMessage());
            }
            Thread.sleep(20);
        }
    }
}
