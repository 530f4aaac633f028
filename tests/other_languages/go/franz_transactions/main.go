// franz-go: copies a partition to another topic in transactions of a group; every third one is aborted.
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	address, name, source, target := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	wanted, err := strconv.Atoi(os.Args[5])
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.TransactionalID(name),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	check(err)
	defer session.Close()
	for done, attempt := 0, 0; done < wanted; attempt++ {
		fetches := session.PollRecords(ctx, 10)
		check(ctx.Err())
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value}, func(_ *kgo.Record, err error) { check(err) })
		})
		check(session.Client().Flush(ctx))
		commit := kgo.TransactionEndTry(attempt%3 != 2)
		committed, err := session.End(ctx, commit)
		check(err)
		if committed {
			done += fetches.NumRecords()
		}
	}
}
