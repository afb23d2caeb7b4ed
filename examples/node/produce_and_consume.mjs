// Tokenizes a text through TokSplice, appends to it, and applies the patch. Prints one JSON object a line.
//
//   node produce_and_consume.mjs --broker 127.0.0.1:9092 --tokenizer qwen3 [--text T] [--append T]
//                                [--session ID] [--tenant T] [--namespace N] [--timeout-ms N]
//   node produce_and_consume.mjs --encode < requests.jsonl     no broker: each request as hex, key and partition
//   node produce_and_consume.mjs --decode < replies.hex        no broker: each reply as JSON
//
// The broker may also come from TOKSPLICE_BROKER, and the namespace, which goes before every topic's name, from
// TOKSPLICE_KAFKA_NAMESPACE.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { decompress } from "./lz4.mjs";
import {
  REPLIES,
  REQUESTS,
  applyPatch,
  baseOf,
  decodeReply,
  encodeRequest,
  partitionFor,
  sessionKey,
} from "./protocol.mjs";

const DEFAULT_PARTITIONS = 12;

const OPTIONS = {
  broker: { type: "string", default: process.env.TOKSPLICE_BROKER },
  namespace: { type: "string", default: process.env.TOKSPLICE_KAFKA_NAMESPACE ?? "" },
  tokenizer: { type: "string" },
  text: { type: "string", default: "The quick brown fox" },
  append: { type: "string", default: " jumps over the lazy dog." },
  session: { type: "string", default: randomUUID() },
  tenant: { type: "string", default: "" },
  "timeout-ms": { type: "string", default: "30000" },
  encode: { type: "boolean", default: false },
  decode: { type: "boolean", default: false },
};

const print = (value) => console.log(JSON.stringify(value));

/** A client on one broker: `ask` sends a request and resolves to its reply. */
async function connect(broker, namespace, timeoutMs) {
  const [requests, replies] = [namespace + REQUESTS, namespace + REPLIES];
  const { default: kafkajs } = await import("kafkajs");
  // Replies may be compressed with lz4, which kafkajs reads only with a codec from outside. What this client
  // sends is not compressed, so reading is enough.
  kafkajs.CompressionCodecs[kafkajs.CompressionTypes.LZ4] = () => ({
    compress: async () => {
      throw new Error("this example does not compress");
    },
    decompress: async (buffer) => decompress(buffer),
  });
  const kafka = new kafkajs.Kafka({
    clientId: "toksplice-example",
    brokers: [broker.replace(/^kafka:\/\//, "")],
    logLevel: kafkajs.logLevel.ERROR,
  });

  const admin = kafka.admin();
  await admin.connect();
  const { topics } = await admin.fetchTopicMetadata({ topics: [requests] });
  const partitions = topics[0].partitions.length;
  const ends = await admin.fetchTopicOffsets(replies);
  await admin.disconnect();

  // Every client reads every reply and keeps its own, so each needs a group of its own.
  const consumer = kafka.consumer({ groupId: `${namespace}example-${randomUUID()}`, maxWaitTimeInMs: 100 });
  const waiting = new Map();
  await consumer.connect();
  await consumer.subscribe({ topics: [replies] });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      const reply = decodeReply(message.value);
      // Delivery is at least once: a second reply to the same request finds nobody waiting and is dropped.
      waiting.get(reply.request_id)?.(reply);
      waiting.delete(reply.request_id);
    },
  });
  // Read on from where the topic ended before anything was sent: no reply can be missed.
  for (const { partition, offset } of ends) consumer.seek({ topic: replies, partition, offset });

  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await producer.connect();

  async function ask(request) {
    const key = sessionKey(request.tenant, request.session_id);
    let timer;
    const reply = new Promise((resolve, reject) => {
      waiting.set(request.request_id, resolve);
      timer = setTimeout(() => reject(new Error(`no reply within ${timeoutMs} ms`)), timeoutMs);
    });
    // A handler from the start: the time limit may strike while the send is still under way.
    reply.catch(() => {});
    try {
      const message = { key, value: encodeRequest(request), partition: partitionFor(key, partitions) };
      await producer.send({ topic: requests, acks: -1, messages: [message] });
      return await reply;
    } finally {
      clearTimeout(timer);
      waiting.delete(request.request_id);
    }
  }

  async function close() {
    await producer.disconnect();
    await consumer.disconnect();
  }
  return { ask, close };
}

async function talk(options) {
  if (!options.broker) throw new Error("no broker: give --broker HOST:PORT or set TOKSPLICE_BROKER");
  if (!options.tokenizer) throw new Error("no tokenizer: give --tokenizer NAME");
  const timeoutMs = Number(options["timeout-ms"]);
  const client = await connect(options.broker, options.namespace, timeoutMs);
  let ids = [];

  async function request(op, fields) {
    const reply = await client.ask({
      request_id: randomUUID(),
      tenant: options.tenant,
      session_id: options.session,
      tokenizer: options.tokenizer,
      op,
      deadline_ms: Date.now() + timeoutMs,
      ...fields,
    });
    if (reply.status === "ok") ids = applyPatch(ids, reply);
    const { status, code, message, path, reason, route, revision, total, keep_left, keep_right } = reply;
    const patch = { total, keep_left, sent: reply.ids.length, keep_right };
    print({ op, status, code, message, path, reason, route, revision, ...patch, ids });
    return reply;
  }

  try {
    // `want: "ids"` asks for all ids, so it does not matter what an old session of this name held.
    let reply = await request("text", { text: options.text, want: "ids" });
    if (reply.status === "ok") reply = await request("append", { text: options.append, base: baseOf(reply) });
    if (reply.status === "need_text" || reply.status === "conflict") {
      // The worker no longer holds the state that the delta builds on; the client holds the text.
      ids = [];
      reply = await request("text", { text: options.text + options.append, want: "ids" });
    }
    if (reply.status === "ok") reply = await request("close", {});
    if (reply.status !== "ok") throw new Error(`${reply.code}: ${reply.message}`);
  } finally {
    await client.close();
  }
}

async function eachLine(handle) {
  for await (const line of createInterface({ input: process.stdin })) if (line) print(handle(line));
}

function encodeLine(line) {
  const request = JSON.parse(line);
  const key = sessionKey(request.tenant ?? "", request.session_id);
  const partition = partitionFor(key, DEFAULT_PARTITIONS);
  return { hex: encodeRequest(request).toString("hex"), key: key.toString("hex"), partition };
}

try {
  const options = parseArgs({ options: OPTIONS }).values;
  if (options.encode) await eachLine(encodeLine);
  else if (options.decode) await eachLine((line) => decodeReply(Buffer.from(line, "hex")));
  else await talk(options);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
