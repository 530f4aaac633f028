// Sarama, configured for clusters of several ages: idempotent producer, group, offsets, configurations.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

const records = 500

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// counter is a member of a group that counts what it sees and ends when all was seen.
type counter struct {
	seen atomic.Int64
	done context.CancelFunc
}

func (*counter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *counter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if c.seen.Add(1) == records {
			c.done()
		}
	}
	return nil
}

func try(version sarama.KafkaVersion) {
	brokers, topic := os.Args[1:2], "sarama-"+version.String()
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Compression = sarama.CompressionLZ4
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	admin, err := sarama.NewClusterAdmin(brokers, config)
	check(err)
	defer admin.Close()
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 3}, false))

	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	var messages []*sarama.ProducerMessage
	for i := range records {
		key := sarama.StringEncoder(fmt.Sprint(i))
		headers := []sarama.RecordHeader{{Key: []byte("a"), Value: []byte("b")}}
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Key: key, Value: key, Headers: headers})
	}
	check(producer.SendMessages(messages))
	check(producer.Close())

	group, err := sarama.NewConsumerGroup(brokers, topic, config)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	member := &counter{done: cancel}
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{topic}, member))
	}
	check(group.Close())

	offsets, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0, 1, 2}})
	check(err)
	var committed int64
	for _, block := range offsets.Blocks[topic] {
		committed += block.Offset
	}
	if seen := member.seen.Load(); seen != records || committed != records {
		log.Fatalf("version %v: %d records seen, %d committed, %d produced", version, seen, committed, records)
	}
	described, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	check(err)
	if len(described) == 0 {
		log.Fatal("a topic without configuration")
	}
	check(admin.DeleteConsumerGroup(topic))
	check(admin.DeleteTopic(topic))
}

func main() {
	for _, version := range []sarama.KafkaVersion{sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V3_6_0_0, sarama.MaxVersion} {
		try(version)
	}
}
