// A service to be tested: it reads orders from one topic, and writes the total of each customer to another.
import { Kafka, logLevel } from "kafkajs";

/** Reads `count` orders of `source`, writes one record a customer to `target`, and returns the totals. */
export async function totalOrders(bootstrapServers, source, target, count) {
  const kafka = new Kafka({ brokers: bootstrapServers.split(","), logLevel: logLevel.ERROR });
  const totals = new Map();
  for (const message of await read(kafka, source, count)) {
    const { customer, amount } = JSON.parse(message.value);
    totals.set(customer, (totals.get(customer) ?? 0) + amount);
  }
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = [...totals].map(([key, total]) => ({ key, value: JSON.stringify({ total }) }));
  await producer.send({ topic: target, messages });
  await producer.disconnect();
  return totals;
}

async function read(kafka, topic, count) {
  const consumer = kafka.consumer({ groupId: "totals-node" });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const messages = await new Promise((resolve, reject) => {
    const found = [];
    const eachMessage = async ({ message }) => {
      found.push(message);
      if (found.length === count) resolve(found);
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return messages;
}
