/* Apache Kafka's test harness starts brokers by this class. This one, which stands before Kafka's on
 * the class path, starts a broker of Barnabas as a process instead.
 *
 * Tests know clients by the listener: who comes by CLIENT is User:client, who comes by
 * BROKER may do everything. Here both are User:ANONYMOUS; CLIENT listens on IPv4, BROKER on IPv6, and
 * entries for the host ::1 allow everything. Lists are written and read by a third listener, as a
 * super user.
 */
package kafka.server

import java.io.{File, PrintWriter}
import java.net.{InetAddress, ServerSocket}
import java.nio.file.Files
import java.time.Duration
import java.util
import java.util.concurrent.{CompletionStage, CompletableFuture, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import kafka.controller.{ControllerContext, KafkaController}
import kafka.log.LogManager
import kafka.log.remote.RemoteLogManager
import kafka.network.SocketServer
import org.apache.kafka.clients.admin.{Admin, AdminClientConfig, ListTopicsOptions}
import org.apache.kafka.common.{Endpoint, TopicPartitionInfo, Uuid}
import org.apache.kafka.common.acl._
import org.apache.kafka.common.message.UpdateMetadataRequestData.UpdateMetadataPartitionState
import org.apache.kafka.common.metrics.Metrics
import org.apache.kafka.common.network.ListenerName
import org.apache.kafka.common.resource._
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache
import org.apache.kafka.common.utils.Time
import org.apache.kafka.coordinator.group.GroupCoordinator
import org.apache.kafka.metadata.BrokerState
import org.apache.kafka.security.CredentialProvider
import org.apache.kafka.server.NodeToControllerChannelManager
import org.apache.kafka.server.authorizer._
import org.apache.kafka.server.metrics.KafkaYammerMetrics
import org.apache.kafka.server.util.Scheduler
import org.apache.zookeeper.client.ZKClientConfig
import org.mockito.ArgumentMatchers.{any, anyInt, anyString}
import org.mockito.Mockito.{mock, when}

object KafkaServer {
  val MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS: Long = 120000

  def zkClientConfigFromKafkaConfig(config: KafkaConfig, forceZkSslClientEnable: Boolean = false): ZKClientConfig =
    new ZKClientConfig

  private val Client = "User:client"
  private val Anonymous = "User:ANONYMOUS"
  private val BrokerHost = "::1"
  /** Settings of tests that are about the JVM. */
  private val Dropped = Set("principal.builder.class", "authorizer.class.name", "super.users", "listeners",
    "advertised.listeners", "listener.security.protocol.map", "log.dir", "metric.reporters", "log.deletion.interval.ms")

  private val Attempts = 3
  private val Admins = new ListenerName("ADMIN")

  /** One for each host; all of them are held until the last one is found. */
  def freePorts(hosts: Seq[String]): Seq[Int] = {
    val sockets = hosts.map(host => new ServerSocket(0, 1, InetAddress.getByName(host)))
    try sockets.map(_.getLocalPort) finally sockets.foreach(_.close())
  }
}

class KafkaServer(
  val config: KafkaConfig,
  time: Time = Time.SYSTEM,
  threadNamePrefix: Option[String] = None,
  enableForwarding: Boolean = false
) extends KafkaBroker {
  import KafkaServer._

  private val names = config.effectiveAdvertisedBrokerListeners.map(_.listenerName)
  private def isOfBrokers(name: ListenerName): Boolean = names.size > 1 && name == config.interBrokerListenerName
  private def host(name: ListenerName): String = if (isOfBrokers(name)) BrokerHost else "127.0.0.1"
  @volatile private var ports: Map[ListenerName, Int] = newPorts
  private def newPorts: Map[ListenerName, Int] = {
    val all = names :+ Admins
    all.zip(freePorts(all.map(host).toSeq)).toMap
  }
  private val folder = Files.createTempDirectory("barnabas-harness").toFile
  private var process: Option[Process] = None
  private var admin: Admin = _
  @volatile private var state = BrokerState.NOT_RUNNING

  /** Another program may take a port before the broker does. */
  override def startup(): Unit = {
    var attempt = 1
    while (!runs(isLast = attempt == Attempts)) {
      attempt += 1
      ports = newPorts
    }
    connect()
  }

  private def runs(isLast: Boolean): Boolean = {
    val file = new File(folder, "server.properties")
    val writer = new PrintWriter(file, "UTF-8")
    properties.foreach { case (name, value) => writer.println(s"$name=$value") }
    writer.close()
    val command = util.List.of(System.getProperty("barnabas"), "server-start", file.toString)
    val log = new File(System.getProperty("barnabas.logs", folder.toString), folder.getName + ".log")
    val started = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log).start()
    process = Some(started)
    def said: String = new String(Files.readAllBytes(log.toPath))
    while (started.isAlive && !said.contains(" started (")) Thread.sleep(50)
    if (!started.isAlive && isLast) throw new IllegalStateException("the broker did not start: " + said)
    started.isAlive
  }

  private def connect(): Unit = {
    val login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"root\" password=\"secret\";"
    admin = Admin.create(util.Map.of[String, AnyRef](
      AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, s"127.0.0.1:${ports(Admins)}", "security.protocol", "SASL_PLAINTEXT",
      "sasl.mechanism", "PLAIN", "sasl.jaas.config", login))
    val all = Seq(ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.DELEGATION_TOKEN)
      .map(kind => new ResourcePattern(kind, "*", PatternType.LITERAL)) :+
      new ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
    val entry = new AccessControlEntry(Anonymous, BrokerHost, AclOperation.ALL, AclPermissionType.ALLOW)
    admin.createAcls(all.map(new AclBinding(_, entry)).asJava).all.get(60, TimeUnit.SECONDS)
    state = BrokerState.RUNNING
  }

  private def properties: Map[String, String] = {
    val given = config.originals.asScala.map { case (name, value) => name -> String.valueOf(value) }.toMap -- Dropped
    val listeners = names.map(name => s"${name.value}://${bracketed(host(name))}:${ports(name)}")
    given ++ Map(
      "listeners" -> (listeners :+ s"ADMIN://127.0.0.1:${ports(Admins)}").mkString(","),
      "listener.security.protocol.map" -> (names.map(name => s"${name.value}:PLAINTEXT") :+ "ADMIN:SASL_PLAINTEXT").mkString(","),
      "listener.name.admin.sasl.enabled.mechanisms" -> "PLAIN",
      "listener.name.admin.plain.sasl.jaas.config" ->
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_root=\"secret\";",
      "authorizer.class.name" -> "kafka.security.authorizer.AclAuthorizer",
      "super.users" -> "User:root",
      "log.dirs" -> config.logDirs.mkString(","),
      "zookeeper.connect" -> config.zkConnect)
  }

  private def bracketed(host: String): String = if (host.contains(":")) s"[$host]" else host

  override def shutdown(timeout: Duration): Unit = {
    if (admin != null) admin.close(Duration.ZERO)
    process.foreach { each => each.destroy(); if (!each.waitFor(60, TimeUnit.SECONDS)) each.destroyForcibly().waitFor() }
    state = BrokerState.NOT_RUNNING
  }
  override def awaitShutdown(): Unit = process.foreach(_.waitFor())
  override def isShutdown(): Boolean = !process.exists(_.isAlive)
  override def brokerState: BrokerState = state
  override def boundPort(name: ListenerName): Int = ports(name)

  override val socketServer: SocketServer = mock(classOf[SocketServer])
  when(socketServer.boundPort(any(classOf[ListenerName]))).thenAnswer(call => Int.box(ports(call.getArgument[ListenerName](0))))

  override val metadataCache: MetadataCache = mock(classOf[MetadataCache])
  when(metadataCache.numPartitions(anyString)).thenAnswer(call => partitions(call.getArgument[String](0)) match {
    case found if found.isEmpty => None
    case found => Some(found.size)
  })
  when(metadataCache.getPartitionInfo(anyString, anyInt)).thenAnswer(call => partitions(call.getArgument[String](0))
    .find(_.partition == call.getArgument[Int](1)).filter(_.leader != null).map { found =>
      new UpdateMetadataPartitionState().setTopicName(call.getArgument[String](0)).setPartitionIndex(found.partition)
        .setLeader(found.leader.id).setIsr(found.isr.asScala.map(node => Int.box(node.id)).asJava)
        .setReplicas(found.replicas.asScala.map(node => Int.box(node.id)).asJava)
    })

  private def partitions(topic: String): Seq[TopicPartitionInfo] =
    try admin.describeTopics(util.List.of(topic)).allTopicNames.get(60, TimeUnit.SECONDS).get(topic).partitions.asScala.toSeq
    catch { case _: java.util.concurrent.ExecutionException => Seq.empty }

  override val groupCoordinator: GroupCoordinator = mock(classOf[GroupCoordinator])
  private val compacted = new util.Properties
  compacted.put("cleanup.policy", "compact")
  when(groupCoordinator.groupMetadataTopicConfigs).thenReturn(compacted)

  val kafkaController: KafkaController = mock(classOf[KafkaController])
  when(kafkaController.isActive).thenReturn(true)
  private val controllerContext: ControllerContext = mock(classOf[ControllerContext])
  when(kafkaController.controllerContext).thenReturn(controllerContext)
  when(controllerContext.topicIds).thenAnswer(_ => mutable.Map.from(topicIds))
  when(controllerContext.topicNames).thenAnswer(_ => mutable.Map.from(topicIds.map(_.swap)))

  private def topicIds: Map[String, Uuid] = {
    val names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names.get(60, TimeUnit.SECONDS)
    admin.describeTopics(names).allTopicNames.get(60, TimeUnit.SECONDS).asScala.map { case (name, found) => name -> found.topicId }.toMap
  }

  override val authorizer: Option[Authorizer] = Some(new Authorizer {
    override def configure(configs: util.Map[String, _]): Unit = ()
    override def start(info: AuthorizerServerInfo): util.Map[Endpoint, _ <: CompletionStage[Void]] = util.Map.of()
    override def authorize(context: AuthorizableRequestContext, actions: util.List[Action]): util.List[AuthorizationResult] =
      throw new UnsupportedOperationException
    override def close(): Unit = ()

    override def createAcls(context: AuthorizableRequestContext, bindings: util.List[AclBinding]): util.List[_ <: CompletionStage[AclCreateResult]] =
      bindings.asScala.map { binding =>
        admin.createAcls(util.List.of(ours(binding))).all.get(60, TimeUnit.SECONDS)
        CompletableFuture.completedFuture(AclCreateResult.SUCCESS)
      }.asJava

    override def deleteAcls(context: AuthorizableRequestContext, filters: util.List[AclBindingFilter]): util.List[_ <: CompletionStage[AclDeleteResult]] =
      filters.asScala.map { filter =>
        val wanted = found(filter).map(_.toFilter).asJavaCollection
        val deleted = admin.deleteAcls(wanted).all.get(60, TimeUnit.SECONDS)
        CompletableFuture.completedFuture(new AclDeleteResult(
          deleted.asScala.map(binding => new AclDeleteResult.AclBindingDeleteResult(theirs(binding))).toSeq.asJava))
      }.asJava

    override def acls(filter: AclBindingFilter): java.lang.Iterable[AclBinding] =
      found(filter).map(theirs).asJava
  })

  private def ours(binding: AclBinding): AclBinding = withPrincipal(binding, Client, Anonymous)
  private def theirs(binding: AclBinding): AclBinding = withPrincipal(binding, Anonymous, Client)
  private def withPrincipal(binding: AclBinding, from: String, to: String): AclBinding = {
    val entry = binding.entry
    val principal = if (entry.principal == from) to else entry.principal
    new AclBinding(binding.pattern, new AccessControlEntry(principal, entry.host, entry.operation, entry.permissionType))
  }
  private def ours(filter: AclBindingFilter): AclBindingFilter = {
    val entry = filter.entryFilter
    val principal = if (entry.principal == Client) Anonymous else entry.principal
    new AclBindingFilter(filter.patternFilter, new AccessControlEntryFilter(principal, entry.host, entry.operation, entry.permissionType))
  }
  /** Those of the tests. */
  private def found(filter: AclBindingFilter): Seq[AclBinding] =
    admin.describeAcls(ours(filter)).values.get(60, TimeUnit.SECONDS).asScala.filter(_.entry.host != BrokerHost).toSeq

  // What no test asks for.
  override def clusterId: String = null
  override def dataPlaneRequestHandlerPool: KafkaRequestHandlerPool = null
  override def dataPlaneRequestProcessor: KafkaApis = null
  override def kafkaScheduler: Scheduler = null
  override def kafkaYammerMetrics: KafkaYammerMetrics = null
  override def logManager: LogManager = null
  override def remoteLogManagerOpt: Option[RemoteLogManager] = None
  override def metrics: Metrics = null
  override def quotaManagers: QuotaFactory.QuotaManagers = null
  override def replicaManager: ReplicaManager = null
  override def brokerTopicStats: BrokerTopicStats = null
  override def credentialProvider: CredentialProvider = null
  override def clientToControllerChannelManager: NodeToControllerChannelManager = null
  override def tokenCache: DelegationTokenCache = null
}
