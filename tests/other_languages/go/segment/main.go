// segmentio/kafka-go: a writer, a group's reader that commits, offsets.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

const topic, records = "segment", 500

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(os.Args[1])}
	wanted := []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 3}}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: wanted})
	check(err)
	check(created.Errors[topic])

	writer := &kafka.Writer{Addr: client.Addr, Topic: topic, RequiredAcks: kafka.RequireAll, Compression: kafka.Snappy}
	var messages []kafka.Message
	for i := range records {
		messages = append(messages, kafka.Message{Key: []byte(fmt.Sprint(i)), Value: []byte("value")})
	}
	check(writer.WriteMessages(ctx, messages...))
	check(writer.Close())

	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: os.Args[1:2], GroupID: topic, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
	})
	for range records {
		message, err := reader.FetchMessage(ctx)
		check(err)
		check(reader.CommitMessages(ctx, message))
	}
	check(reader.Close())

	partitions := map[string][]int{topic: {0, 1, 2}}
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: topic, Topics: partitions})
	check(err)
	var committed int64
	for _, one := range fetched.Topics[topic] {
		committed += one.CommittedOffset
	}
	if committed != records {
		log.Fatalf("%d committed of %d", committed, records)
	}
}
