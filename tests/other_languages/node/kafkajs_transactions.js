// KafkaJS: copies a partition to another topic in transactions; every third one is aborted.
const { Kafka, logLevel } = require('kafkajs');

const SIZE = 10;

async function main() {
  const [address, name, source, target, count] = process.argv.slice(2);
  const wanted = Number(count);
  const kafka = new Kafka({ brokers: [address], logLevel: logLevel.WARN });
  const consumer = kafka.consumer({ groupId: `${name}-reads`, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  const read = [];
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${read.length} of ${wanted} read after 60 s`)), 60_000).unref();
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => { read.push(message); if (read.length === wanted) resolve(); },
    });
  });
  await consumer.disconnect();

  const producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let done = 0, attempt = 0; done < wanted; attempt += 1) {
    const messages = read.slice(done, done + SIZE);
    const transaction = await producer.transaction();
    await transaction.send({ topic: target, messages: messages.map(({ value }) => ({ value, partition: 0 })) });
    const offset = `${Number(messages.at(-1).offset) + 1}`;
    await transaction.sendOffsets({ consumerGroupId: name, topics: [{ topic: source, partitions: [{ partition: 0, offset }] }] });
    if (attempt % 3 === 2) {
      await transaction.abort();
    } else {
      await transaction.commit();
      done += messages.length;
    }
  }
  await producer.disconnect();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
