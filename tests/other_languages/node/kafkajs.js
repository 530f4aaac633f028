// KafkaJS: idempotent producer, group, offsets, configurations, administration.
const assert = require('node:assert');
const { CompressionTypes, Kafka, logLevel } = require('kafkajs');

const TOPIC = 'kafkajs';
const RECORDS = 500;

async function main() {
  const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.WARN });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 3, replicationFactor: 3 }] });

  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = Array.from({ length: RECORDS }, (_, i) => ({ key: `${i}`, value: `value ${i}`, headers: { a: 'b' } }));
  await producer.send({ topic: TOPIC, compression: CompressionTypes.GZIP, messages });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: TOPIC });
  await consumer.connect();
  await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${seen} of ${RECORDS} seen after 60 s`)), 60_000).unref();
    consumer.run({ autoCommit: false, eachMessage: async () => { seen += 1; if (seen === RECORDS) resolve(); } });
  });
  await consumer.commitOffsets([{ topic: TOPIC, partition: 0, offset: '3' }]);
  const [committed] = await admin.fetchOffsets({ groupId: TOPIC, topics: [TOPIC] });
  assert.equal(committed.partitions.find(({ partition }) => partition === 0).offset, '3');
  assert.equal((await admin.describeGroups([TOPIC])).groups[0].state, 'Stable');
  await consumer.disconnect();

  const ends = await admin.fetchTopicOffsets(TOPIC);
  assert.equal(ends.reduce((total, { high }) => total + Number(high), 0), RECORDS);
  const described = await admin.describeConfigs({ resources: [{ type: 2, name: TOPIC }], includeSynonyms: true });
  assert.ok(described.resources[0].configEntries.length > 20);
  await admin.deleteTopicRecords({ topic: TOPIC, partitions: [{ partition: 0, offset: '2' }] });
  await admin.listPartitionReassignments({});
  await admin.deleteGroups([TOPIC]);
  await admin.deleteTopics({ topics: [TOPIC] });
  await admin.disconnect();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
