// Sarama: copies a partition to another topic in transactions; every third one is aborted.
package main

import (
	"log"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

const size = 10

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	brokers, name, source, target := os.Args[1:2], os.Args[2], os.Args[3], os.Args[4]
	wanted, err := strconv.Atoi(os.Args[5])
	check(err)
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = name
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	defer producer.Close()
	consumer, err := sarama.NewConsumer(brokers, config)
	check(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(source, 0, sarama.OffsetOldest)
	check(err)
	defer partition.Close()
	var read []*sarama.ConsumerMessage
	for len(read) < wanted {
		read = append(read, <-partition.Messages())
	}
	for done, attempt := 0, 0; done < wanted; attempt++ {
		end := min(done+size, wanted)
		check(producer.BeginTxn())
		var messages []*sarama.ProducerMessage
		for _, message := range read[done:end] {
			messages = append(messages, &sarama.ProducerMessage{Topic: target, Value: sarama.ByteEncoder(message.Value)})
		}
		check(producer.SendMessages(messages))
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			source: {{Partition: 0, Offset: read[end-1].Offset + 1}},
		}
		check(producer.AddOffsetsToTxn(offsets, name))
		if attempt%3 == 2 {
			check(producer.AbortTxn())
		} else {
			check(producer.CommitTxn())
			done = end
		}
	}
}
