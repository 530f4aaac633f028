// franz-go: produces, shares a topic in a group of two, commits, and asks what an administrator asks.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic, group, records = "franz", "franz", 1000

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func expect(what string, got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		log.Fatalf("%s: got %v, not %v", what, got, want)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(os.Args[1]))...)
	check(err)
	return made
}

func produce(ctx context.Context) {
	producer := client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	defer producer.Close()
	for i := 0; i < records; i++ {
		record := kgo.KeyStringRecord(fmt.Sprint(i), fmt.Sprint("value ", i))
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
	}
	check(producer.Flush(ctx))
}

// consume ends when the group has committed every record; who reads which partition changes while the second joins.
func consume(ctx context.Context, admin *kadm.Client) {
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	var members []*kgo.Client
	for range 2 {
		members = append(members, client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), start, kgo.DisableAutoCommit()))
	}
	for committed := int64(0); committed < records; {
		for _, member := range members {
			short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			member.PollFetches(short)
			cancel()
			check(ctx.Err())
			check(member.CommitUncommittedOffsets(ctx))
		}
		offsets, err := admin.FetchOffsets(ctx, group)
		check(err)
		committed = 0
		offsets.Each(func(one kadm.OffsetResponse) { committed += one.At })
	}
	for _, member := range members {
		member.Close()
	}
}

func administer(ctx context.Context, admin *kadm.Client) {
	lags, err := admin.Lag(ctx, group)
	check(err)
	expect("lag", lags[group].Lag.Total(), 0)
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err)
	var total int64
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	expect("records", total, records)
	deleted, err := admin.DeleteRecords(ctx, kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: 5}}})
	check(err)
	expect("low watermark", deleted[topic][0].LowWatermark, 5)
	dirs, err := admin.DescribeAllLogDirs(ctx, nil)
	check(err)
	expect("brokers with log dirs", len(dirs), 3)
	dirs.Each(func(dir kadm.DescribedLogDir) { check(dir.Err) })
	days := "259200000"
	_, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &days}}, topic)
	check(err)
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err)
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			expect("retention.ms", *config.Value, days)
		}
	}
	grown, err := admin.CreatePartitions(ctx, 2, topic)
	check(err)
	check(grown[topic].Err)
	_, err = admin.ListPartitionReassignments(ctx, nil)
	check(err)
	_, err = admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
	check(err)
	gone, err := admin.DeleteGroups(ctx, group)
	check(err)
	check(gone[group].Err)
	_, err = admin.DeleteTopics(ctx, topic)
	check(err)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	connection := client()
	defer connection.Close()
	admin := kadm.NewClient(connection)
	created, err := admin.CreateTopics(ctx, 3, 3, nil, topic)
	check(err)
	check(created[topic].Err)
	produce(ctx)
	consume(ctx, admin)
	administer(ctx, admin)
}
