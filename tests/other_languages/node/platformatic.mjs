// @platformatic/kafka: producer, group's stream, administration.
import assert from 'node:assert';
import { Admin, Consumer, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka';

const TOPIC = 'platformatic';
const RECORDS = 300;
const common = { clientId: 'test', bootstrapBrokers: [process.argv[2]] };

const admin = new Admin(common);
await admin.createTopics({ topics: [TOPIC], partitions: 3, replicas: 3 });
const producer = new Producer({ ...common, serializers: stringSerializers });
const messages = Array.from({ length: RECORDS }, (_, i) => ({ topic: TOPIC, key: `${i}`, value: `value ${i}` }));
await producer.send({ messages });
const consumer = new Consumer({ ...common, groupId: TOPIC, deserializers: stringDeserializers });
const stream = await consumer.consume({ topics: [TOPIC], mode: MessagesStreamModes.EARLIEST });
const keys = new Set();
for await (const message of stream) {
  keys.add(message.key);
  if (keys.size === RECORDS) break;
}
assert.equal(keys.size, RECORDS);
await consumer.close(true);
await producer.close();
await admin.deleteTopics({ topics: [TOPIC] });
await admin.close();
process.exit(0);
