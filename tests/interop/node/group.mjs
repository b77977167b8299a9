// A group of two kafkajs consumers on whatever broker stands at the given address.
//
//   node group.mjs HOST:PORT
//
// Creates a topic, produces 1 000 records, consumes them through the group, commits. Every record must come exactly
// once and the committed offsets must be the ends of the partitions. Exits 0 with a summary, 1 with what went wrong.
// KOHORT_NODE_MODULES names the folder that kafkajs is installed in.

import { createRequire } from "node:module";

const { Kafka, logLevel } = createRequire(process.env.KOHORT_NODE_MODULES + "/")("kafkajs");

const PARTITIONS = 4;
const RECORDS = 1000;
const STEP_MS = 30_000;

const bootstrap = process.argv[2];
const token = Math.random().toString(16).slice(2, 10);
const topic = `kafkajs-${token}`;
const groupId = `kafkajs-group-${token}`;
const kafka = new Kafka({ clientId: "kafkajs", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });

async function until(what, condition) {
  const deadline = Date.now() + STEP_MS;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`not within ${STEP_MS / 1000} s: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

class Member {
  constructor() {
    this.owned = [];
    this.seen = [];
    this.consumer = kafka.consumer({ groupId, sessionTimeout: 10_000, heartbeatInterval: 500 });
    this.consumer.on("consumer.group_join", ({ payload }) => {
      this.owned = payload.memberAssignment[topic] ?? [];
    });
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topic, fromBeginning: true });
    await this.consumer.run({
      eachMessage: async ({ partition, message }) => {
        this.seen.push(`${partition}@${message.offset}=${message.value}`);
      },
    });
  }
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }] });

  const members = [new Member(), new Member()];
  for (const member of members) await member.start();
  await until("each has half", () => {
    const owned = members.map((member) => member.owned);
    return owned.every((share) => share.length === 2) && new Set(owned.flat()).size === PARTITIONS;
  });

  const producer = kafka.producer();
  await producer.connect();
  const messages = [...Array(RECORDS).keys()].map((number) => ({
    key: `key-${number}`,
    value: `${number}`,
    partition: number % PARTITIONS,
  }));
  await producer.send({ topic, messages });
  await producer.disconnect();

  const seen = () => members.flatMap((member) => member.seen);
  await until("all records", () => seen().length >= RECORDS);
  // The disconnect commits what was handled.
  for (const member of members) await member.consumer.disconnect();
  if (seen().length !== RECORDS || new Set(seen()).size !== RECORDS) {
    throw new Error(`${seen().length} records came, ${new Set(seen()).size} of them different`);
  }

  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
  const wrong = partitions.filter(({ offset }) => Number(offset) !== RECORDS / PARTITIONS);
  if (partitions.length !== PARTITIONS || wrong.length > 0) {
    throw new Error(`committed offsets: ${JSON.stringify(partitions)}`);
  }
  const { groups } = await admin.describeGroups([groupId]);
  if (groups[0].state !== "Empty") throw new Error(`the group is ${groups[0].state}`);
  if (!(await admin.listGroups()).groups.some((group) => group.groupId === groupId)) {
    throw new Error("the group is not listed");
  }
  await admin.deleteGroups([groupId]);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  const shares = members.map((member) => member.seen.length).join(" and ");
  console.log(`ok: kafkajs at ${bootstrap}: ${RECORDS} records, ${shares} of them by each member; deleted`);
}

main().then(
  () => process.exit(0),
  (problem) => {
    console.error(`FAILED at ${bootstrap}: ${problem.stack}`);
    process.exit(1);
  },
);
