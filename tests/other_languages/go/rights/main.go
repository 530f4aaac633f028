// franz-go and Sarama as a user without a right: ADDRESS USER PASSWORD ATTEMPT TOPIC GROUP TRANSACTION tries
// one thing and prints the error that the library has for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

var address, user, password, attempt = os.Args[1], os.Args[2], os.Args[3], os.Args[4]
var topic, group, transaction = os.Args[5], os.Args[6], os.Args[7]

func franz(options ...kgo.Opt) *kgo.Client {
	login := plain.Auth{User: user, Pass: password}.AsMechanism()
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(address), kgo.SASL(login))...)
	if err != nil {
		log.Fatal(err)
	}
	return made
}

// name is Kafka's own name for an error of franz-go.
func name(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return fmt.Sprint(err)
}

func franzProduce(ctx context.Context, options ...kgo.Opt) string {
	client := franz(options...)
	defer client.Close()
	return name(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
}

func franzTransact(ctx context.Context) string {
	client := franz(kgo.TransactionalID(transaction))
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return name(err)
	}
	return name(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
}

func franzConsume(ctx context.Context) string {
	client := franz(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic))
	defer client.Close()
	for ctx.Err() == nil {
		for _, failed := range client.PollFetches(ctx).Errors() {
			return name(failed.Err)
		}
	}
	return "no error"
}

func franzAcls(ctx context.Context) string {
	client := franz()
	defer client.Close()
	every := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations().
		ResourcePatternType(kadm.ACLPatternAny)
	results, err := kadm.NewClient(client).DescribeACLs(ctx, every)
	if err != nil {
		return name(err)
	}
	return name(results[0].Err)
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.Net.SASL.Enable, made.Net.SASL.Mechanism = true, sarama.SASLTypePlaintext
	made.Net.SASL.User, made.Net.SASL.Password = user, password
	made.Producer.Return.Successes, made.Producer.RequiredAcks = true, sarama.WaitForAll
	made.Metadata.Retry.Max, made.Producer.Retry.Max = 1, 1
	return made
}

func saramaProduce(made *sarama.Config) string {
	producer, err := sarama.NewSyncProducer([]string{address}, made)
	if err != nil {
		return fmt.Sprint(err)
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("v")})
	return fmt.Sprint(err)
}

func saramaTransact() string {
	made := config()
	made.Producer.Idempotent, made.Producer.Transaction.ID, made.Net.MaxOpenRequests = true, transaction, 1
	return saramaProduce(made)
}

type sink struct{}

func (sink) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (sink) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (sink) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for range claim.Messages() {
	}
	return nil
}

func saramaConsume(ctx context.Context) string {
	made := config()
	made.Consumer.Return.Errors = true
	member, err := sarama.NewConsumerGroup([]string{address}, group, made)
	if err != nil {
		return fmt.Sprint(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- member.Consume(ctx, []string{topic}, sink{}) }()
	select {
	case err = <-ended:
	case err = <-member.Errors():
	}
	return fmt.Sprint(err)
}

func saramaAcls() string {
	admin, err := sarama.NewClusterAdmin([]string{address}, config())
	if err != nil {
		return fmt.Sprint(err)
	}
	defer admin.Close()
	_, err = admin.ListAcls(sarama.AclFilter{
		ResourceType:              sarama.AclResourceAny,
		ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation:                 sarama.AclOperationAny,
		PermissionType:            sarama.AclPermissionAny,
	})
	return fmt.Sprint(err)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	attempts := map[string]func() string{
		"franz produces":                  func() string { return franzProduce(ctx, kgo.DisableIdempotentWrite()) },
		"franz produces with idempotence": func() string { return franzProduce(ctx) },
		"franz begins a transaction":      func() string { return franzTransact(ctx) },
		"franz consumes":                  func() string { return franzConsume(ctx) },
		"franz lists acls":                func() string { return franzAcls(ctx) },
		"sarama produces":                 func() string { return saramaProduce(config()) },
		"sarama begins a transaction":     saramaTransact,
		"sarama consumes":                 func() string { return saramaConsume(ctx) },
		"sarama lists acls":               saramaAcls,
	}
	fmt.Println(attempts[attempt]())
}
