import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

/** Curator's recipes on an ensemble: once on a whole one, then, after a line on stdin, while its leader is killed. */
public class Recipes {
    static void check(boolean holds, String what) {
        if (!holds) {
            System.out.println(what);
            Runtime.getRuntime().halt(1);
        }
    }

    static CuratorFramework connect(String servers) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, 15000, 10000, new RetryNTimes(200, 100));
        client.start();
        check(client.blockUntilConnected(30, TimeUnit.SECONDS), "no connection");
        return client;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void eventually(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!condition.holds()) {
            check(System.nanoTime() < end, "not within 30 s: " + what);
            Thread.sleep(20);
        }
    }

    /** Three clients count under a lock: an unprotected read and write, so that a broken lock loses updates. */
    static void lock(List<CuratorFramework> clients, String base, CountDownLatch began) throws Exception {
        clients.get(0).create().creatingParentsIfNeeded().forPath(base + "/counted", "0".getBytes());
        ExecutorService pool = Executors.newFixedThreadPool(clients.size());
        AtomicInteger inside = new AtomicInteger();
        List<Future<?>> futures = clients.stream().<Future<?>>map(client -> pool.submit(() -> {
            InterProcessMutex mutex = new InterProcessMutex(client, base + "/lock");
            for (int turn = 0; turn < 8; turn++) {
                check(mutex.acquire(60, TimeUnit.SECONDS), "the lock was not acquired");
                check(inside.incrementAndGet() == 1, "two hold the lock");
                client.sync().forPath(base + "/counted");
                int count = Integer.parseInt(new String(client.getData().forPath(base + "/counted")));
                client.setData().forPath(base + "/counted", String.valueOf(count + 1).getBytes());
                inside.decrementAndGet();
                mutex.release();
                began.countDown();
            }
            return null;
        })).toList();
        for (Future<?> future : futures) future.get(90, TimeUnit.SECONDS);
        pool.shutdown();
        clients.get(0).sync().forPath(base + "/counted");
        String counted = new String(clients.get(0).getData().forPath(base + "/counted"));
        check(counted.equals(String.valueOf(8 * clients.size())), "counted " + counted);
    }

    static void others(List<CuratorFramework> clients, String base) throws Exception {
        CuratorFramework one = clients.get(0), two = clients.get(1);

        LeaderLatch first = new LeaderLatch(one, base + "/leader", "one"), second = new LeaderLatch(two, base + "/leader", "two");
        first.start();
        check(first.await(30, TimeUnit.SECONDS), "the first latch does not lead");
        second.start();
        eventually("two candidates", () -> second.getParticipants().size() == 2);
        check(!second.hasLeadership(), "two lead");
        first.close();
        check(second.await(30, TimeUnit.SECONDS), "leadership did not pass on");
        second.close();

        DistributedAtomicLong number = new DistributedAtomicLong(one, base + "/long", new RetryNTimes(10, 10));
        for (int i = 0; i < 10; i++) check(number.increment().succeeded(), "an increment failed");
        check(number.get().postValue() == 10, "the atomic number");

        SharedCount mine = new SharedCount(one, base + "/shared", 3), theirs = new SharedCount(two, base + "/shared", 3);
        mine.start();
        theirs.start();
        mine.setCount(8);
        eventually("the shared count", () -> theirs.getCount() == 8);
        mine.close();
        theirs.close();

        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(one, base + "/rw");
        InterProcessReadWriteLock other = new InterProcessReadWriteLock(two, base + "/rw");
        lock.readLock().acquire();
        other.readLock().acquire();
        check(!other.writeLock().acquire(100, TimeUnit.MILLISECONDS), "a writer beside a reader");
        other.readLock().release();
        lock.readLock().release();
        check(other.writeLock().acquire(30, TimeUnit.SECONDS), "no writer without readers");
        other.writeLock().release();

        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(one, base + "/semaphore", 2);
        Lease lease = semaphore.acquire(), more = semaphore.acquire();
        check(semaphore.acquire(100, TimeUnit.MILLISECONDS) == null, "three leases of two");
        semaphore.returnLease(lease);
        semaphore.returnLease(more);

        ExecutorService pool = Executors.newFixedThreadPool(2);
        List<Future<?>> inside = clients.subList(0, 2).stream().<Future<?>>map(client -> pool.submit(() -> {
            DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, base + "/barrier", 2);
            check(barrier.enter(60, TimeUnit.SECONDS), "the barrier stays closed");
            check(barrier.leave(60, TimeUnit.SECONDS), "the barrier holds back");
            return null;
        })).toList();
        for (Future<?> future : inside) future.get(90, TimeUnit.SECONDS);
        pool.shutdown();

        one.create().creatingParentsIfNeeded().forPath(base + "/queue");
        SimpleDistributedQueue queue = new SimpleDistributedQueue(one, base + "/queue");
        for (int i = 0; i < 5; i++) check(queue.offer(String.valueOf(i).getBytes()), "an offer failed");
        SimpleDistributedQueue taker = new SimpleDistributedQueue(two, base + "/queue");
        two.sync().forPath(base + "/queue");
        for (int i = 0; i < 5; i++) check(new String(taker.take()).equals(String.valueOf(i)), "the order of the queue");
    }

    public static void main(String[] arguments) throws Exception {
        List<CuratorFramework> clients = List.of(connect(arguments[0]), connect(arguments[0]), connect(arguments[0]));
        CuratorFramework one = clients.get(0), two = clients.get(1);
        lock(clients, "/curator/whole", new CountDownLatch(1));
        others(clients, "/curator/whole");

        CuratorCache cache = CuratorCache.build(two, "/curator/cached");
        cache.start();
        PersistentNode member = new PersistentNode(one, CreateMode.EPHEMERAL, false, "/curator/cached/member", new byte[0]);
        member.start();
        check(member.waitForInitialCreate(30, TimeUnit.SECONDS), "the member's node");
        eventually("the cache", () -> cache.get("/curator/cached/member").isPresent());
        long owner = one.checkExists().forPath("/curator/cached/member").getEphemeralOwner();

        CountDownLatch began = new CountDownLatch(6);
        Thread kill = new Thread(() -> {
            try {
                began.await();
                System.out.println("ready");
                System.in.read();
            } catch (Exception error) {
                check(false, error.toString());
            }
        });
        kill.start();
        lock(clients, "/curator/killed", began);
        kill.join();
        others(clients, "/curator/killed");
        check(one.checkExists().forPath("/curator/cached/member").getEphemeralOwner() == owner, "the session was lost");
        one.create().forPath("/curator/cached/late");
        eventually("the cache after the kill", () -> cache.get("/curator/cached/late").isPresent());
        member.close();
        eventually("the cache without the member", () -> cache.get("/curator/cached/member").isEmpty());
        cache.close();
        for (CuratorFramework client : clients) client.close();
        Runtime.getRuntime().halt(0);
    }
}
