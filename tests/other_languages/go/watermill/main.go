// Watermill: a router's handler copies a topic; a message is acknowledged when its copy is written.
package main

import (
	"context"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

func main() {
	brokers, name, source, target := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]
	logger := watermill.NewStdLogger(false, false)

	reading := kafka.DefaultSaramaSubscriberConfig()
	reading.Consumer.Offsets.Initial = sarama.OffsetOldest
	reading.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	reading.Consumer.Group.Session.Timeout = 6 * time.Second
	reading.Consumer.Group.Heartbeat.Interval = time.Second
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: brokers, Unmarshaler: kafka.DefaultMarshaler{}, ConsumerGroup: name, OverwriteSaramaConfig: reading,
	}, logger)
	check(err)

	writing := kafka.DefaultSaramaSyncPublisherConfig()
	writing.Producer.RequiredAcks = sarama.WaitForAll
	writing.Producer.Retry.Max = 100
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: brokers, Marshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: writing,
	}, logger)
	check(err)

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	check(err)
	copied := func(read *message.Message) ([]*message.Message, error) {
		return message.Messages{message.NewMessage(watermill.NewUUID(), read.Payload)}, nil
	}
	router.AddHandler(name, source, subscriber, target, publisher, copied)
	check(router.Run(context.Background()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
