// Reads LZ4 frames, as Kafka carries them (https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md).
// Kafka's record batches have a CRC of their own, so the frame's checksums are skipped, not verified.

const MAGIC = 0x184d2204;
const BLOCK_CHECKSUM = 0x10;
const CONTENT_SIZE = 0x08;
const CONTENT_CHECKSUM = 0x04;
const DICTIONARY_ID = 0x01;
const STORED = 0x80000000;

/** The content of the LZ4 frame in a Buffer. At most `limit` bytes come out; a longer frame is an error. */
export function decompress(frame, limit = 64 * 1024 * 1024) {
  if (frame.readUInt32LE(0) !== MAGIC) throw new Error("not an LZ4 frame");
  const flags = frame[4];
  let at = 7 + (flags & CONTENT_SIZE ? 8 : 0) + (flags & DICTIONARY_ID ? 4 : 0);
  const out = { bytes: Buffer.alloc(Math.min(limit, 64 * 1024)), size: 0, limit };
  for (;;) {
    const header = frame.readUInt32LE(at);
    at += 4;
    if (header === 0) break;
    const size = header & ~STORED;
    if (at + size > frame.length) throw new Error("an LZ4 block is cut short");
    const block = frame.subarray(at, at + size);
    if (header & STORED) append(out, block);
    else expand(block, out);
    at += size + (flags & BLOCK_CHECKSUM ? 4 : 0);
  }
  if (flags & CONTENT_CHECKSUM && at + 4 > frame.length) throw new Error("an LZ4 frame is cut short");
  return out.bytes.subarray(0, out.size);
}

/** Make room for `extra` more bytes. */
function grow(out, extra) {
  const needed = out.size + extra;
  if (needed > out.limit) throw new Error(`an LZ4 frame holds more than ${out.limit} bytes`);
  if (needed <= out.bytes.length) return;
  const bytes = Buffer.alloc(Math.min(out.limit, Math.max(needed, out.bytes.length * 2)));
  out.bytes.copy(bytes, 0, 0, out.size);
  out.bytes = bytes;
}

function append(out, bytes) {
  grow(out, bytes.length);
  out.bytes.set(bytes, out.size);
  out.size += bytes.length;
}

/** Decode one compressed block: literals and copies of what came before, in turns. */
function expand(block, out) {
  let at = 0;
  const length = (nibble) => {
    let total = nibble;
    if (nibble === 15) {
      let byte;
      do {
        byte = block[at++];
        if (byte === undefined) throw new Error("an LZ4 block is cut short");
        total += byte;
      } while (byte === 255);
    }
    return total;
  };
  while (at < block.length) {
    const token = block[at++];
    const literals = length(token >> 4);
    if (at + literals > block.length) throw new Error("an LZ4 block is cut short");
    append(out, block.subarray(at, at + literals));
    at += literals;
    if (at === block.length) return; // The last sequence has no copy.
    const distance = block.readUInt16LE(at);
    at += 2;
    const count = length(token & 15) + 4;
    if (distance === 0 || distance > out.size) throw new Error("an LZ4 copy reaches before the start");
    grow(out, count);
    // Byte by byte: a copy may overlap what it writes, which is how LZ4 repeats a pattern.
    for (let i = 0; i < count; i++, out.size++) out.bytes[out.size] = out.bytes[out.size - distance];
  }
}
