// go-zookeeper on an ensemble: everything before "ready" on a whole one, everything after the line on stdin once its leader is killed.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

func must(err error, what string) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		os.Exit(1)
	}
}

func check(holds bool, what string, args ...any) {
	if !holds {
		fmt.Printf(what+"\n", args...)
		os.Exit(1)
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func connect(servers []string) *zk.Conn {
	conn, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(quiet{}))
	must(err, "connect")
	return conn
}

// again repeats what fails because the connection is lost, as users of this library do.
func again(what string, action func() error) {
	deadline := time.Now().Add(40 * time.Second)
	for {
		err := action()
		if err == nil {
			return
		}
		lost := err == zk.ErrConnectionClosed || err == zk.ErrNoServer || err == zk.ErrSessionMoved
		check(lost && time.Now().Before(deadline), "%s: %v", what, err)
		time.Sleep(50 * time.Millisecond)
	}
}

func main() {
	servers := strings.Split(os.Args[1], ",")
	all := zk.WorldACL(zk.PermAll)
	one, two := connect(servers), connect(servers[1:])

	_, err := one.Create("/go", []byte("root"), 0, all)
	must(err, "create")
	_, err = one.Create("/go", nil, 0, all)
	check(err == zk.ErrNodeExists, "a second create: %v", err)
	data, stat, err := one.Get("/go")
	must(err, "get")
	check(string(data) == "root" && stat.Version == 0, "get: %q %v", data, stat)
	_, err = one.Set("/go", []byte("new"), 7)
	check(err == zk.ErrBadVersion, "set with another version: %v", err)

	_, err = two.Sync("/go")
	must(err, "sync")
	_, _, event, err := two.ChildrenW("/go")
	must(err, "children with a watch")
	for number := 0; number < 3; number++ {
		path, err := one.Create("/go/s-", nil, zk.FlagSequence, all)
		must(err, "create a sequence node")
		check(path == fmt.Sprintf("/go/s-%010d", number), "sequence node %s", path)
	}
	check((<-event).Type == zk.EventNodeChildrenChanged, "the watch of the children")

	answers, err := one.Multi(
		&zk.CreateRequest{Path: "/go/m", Acl: all}, &zk.SetDataRequest{Path: "/go", Data: []byte("multi"), Version: 0},
		&zk.CheckVersionRequest{Path: "/go", Version: 1},
	)
	must(err, "multi")
	check(len(answers) == 3 && answers[1].Stat.Version == 1, "answers of multi: %v", answers)
	_, err = one.Multi(&zk.DeleteRequest{Path: "/go/m", Version: 0}, &zk.CheckVersionRequest{Path: "/go", Version: 9})
	check(err == zk.ErrBadVersion, "a multi with a wrong version: %v", err)
	exists, _, err := one.Exists("/go/m")
	check(err == nil && exists, "a refused multi changed something: %v", err)

	must(one.AddAuth("digest", []byte("user:password")), "auth")
	_, err = one.Create("/go/secret", []byte("x"), 0, zk.DigestACL(zk.PermAll, "user", "password"))
	must(err, "create with an ACL")
	_, err = two.Sync("/go/secret")
	must(err, "sync")
	_, _, err = two.Get("/go/secret")
	check(err == zk.ErrNoAuth, "get without the password: %v", err)

	_, err = one.Create("/go/alive", nil, zk.FlagEphemeral, all)
	must(err, "create an ephemeral node")
	_, err = two.Sync("/go/alive")
	must(err, "sync")
	_, _, alive, err := two.ExistsW("/go/alive")
	must(err, "exists with a watch")
	session := one.SessionID()

	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')

	again("set", func() error { _, err := one.Set("/go", []byte("after"), -1); return err })
	check(one.SessionID() == session, "the session was lost")
	again("the ephemeral node", func() error {
		exists, _, err := two.Exists("/go/alive")
		if err == nil {
			check(exists, "the ephemeral node of a live session is gone")
		}
		return err
	})

	// The lock recipe: read, then write what was read plus one; without a lock updates are lost.
	again("counter", func() error {
		_, err := one.Create("/go/counter", []byte("0"), 0, all)
		if err == zk.ErrNodeExists {
			return nil
		}
		return err
	})
	var group sync.WaitGroup
	for worker := 0; worker < 3; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			conn := connect(servers)
			defer conn.Close()
			for turn := 0; turn < 5; turn++ {
				lock := zk.NewLock(conn, "/go/lock", all)
				must(lock.Lock(), "lock")
				_, err := conn.Sync("/go/counter")
				must(err, "sync")
				data, stat, err := conn.Get("/go/counter")
				must(err, "get the counter")
				var number int
				fmt.Sscan(string(data), &number)
				_, err = conn.Set("/go/counter", []byte(fmt.Sprint(number+1)), stat.Version)
				must(err, "set the counter")
				must(lock.Unlock(), "unlock")
			}
		}()
	}
	group.Wait()
	_, err = two.Sync("/go/counter")
	must(err, "sync")
	data, _, err = two.Get("/go/counter")
	must(err, "get the counter")
	check(string(data) == "15", "the counter is %s", data)

	names, _, err := two.Children("/go")
	must(err, "children")
	sort.Strings(names)
	expected := "alive counter lock m s-0000000000 s-0000000001 s-0000000002 secret"
	check(strings.Join(names, " ") == expected, "children: %v", names)
	one.Close()
	select {
	case event := <-alive:
		check(event.Type == zk.EventNodeDeleted, "the watch of the ephemeral node: %v", event)
	case <-time.After(60 * time.Second):
		check(false, "the watch of the ephemeral node did not fire")
	}
	two.Close()
}
