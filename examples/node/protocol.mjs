// The wire protocol, version 1, as far as a client needs it: docs/protocol.md is the reference.

import { decode, encode } from "@msgpack/msgpack";

export const REQUESTS = "tokenize.requests";
export const REPLIES = "tokenize.replies";

const VERSION = 1;

/** The record key of a session: tenant, NUL, session id. */
export function sessionKey(tenant, sessionId) {
  return Buffer.from(`${tenant}\0${sessionId}`, "utf8");
}

/** Kafka's 32-bit murmur2 of a Buffer, as an unsigned number. */
export function murmur2(data) {
  const M = 0x5bd1e995;
  const whole = data.length & ~3;
  let h = 0x9747b28c ^ data.length;
  for (let i = 0; i < whole; i += 4) {
    let k = Math.imul(data.readInt32LE(i), M);
    k ^= k >>> 24;
    h = Math.imul(h, M) ^ Math.imul(k, M);
  }
  if (whole < data.length) {
    h = Math.imul(h ^ data.readUIntLE(whole, data.length - whole), M);
  }
  h = Math.imul(h ^ (h >>> 13), M);
  return (h ^ (h >>> 15)) >>> 0;
}

/** The partition that Kafka's default partitioner gives to a key. */
export function partitionFor(key, partitions) {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

/** A request as a record value. A lone surrogate has no UTF-8 form, so it becomes U+FFFD here, in sight. */
export function encodeRequest(request) {
  const text = request.text === undefined ? {} : { text: request.text.toWellFormed() };
  return Buffer.from(encode({ v: VERSION, ...request, ...text }, { ignoreUndefined: true }));
}

/** A record value as a reply, with `ids` and `offsets` as arrays of numbers. */
export function decodeReply(data) {
  const reply = decode(data);
  if (reply.v !== VERSION) {
    throw new Error(`a reply of version ${reply.v}; this client knows version ${VERSION}`);
  }
  reply.ids = u32(reply.ids);
  if (reply.offsets) reply.offsets = u32(reply.offsets);
  return reply;
}

/** The session's new ids: the old ones with the reply's patch applied. */
export function applyPatch(old, reply) {
  const right = old.slice(old.length - reply.keep_right);
  const ids = [...old.slice(0, reply.keep_left), ...reply.ids, ...right];
  if (ids.length !== reply.total) {
    throw new Error(`the patch makes ${ids.length} ids, but the session has ${reply.total}`);
  }
  return ids;
}

/** The state that the next delta builds on, from an `ok` reply. */
export function baseOf(reply) {
  return { revision: reply.revision, length: reply.length, epoch: reply.epoch };
}

function u32(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.byteLength / 4 }, (_, i) => view.getUint32(i * 4, true));
}
