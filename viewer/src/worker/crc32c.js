// CRC-32C, as the arrival index has it of each read, eight bytes at a time.

const POLYNOMIAL = 0x82f63b78;
const tables = Array.from({ length: 8 }, () => new Uint32Array(256));
for (let i = 0; i < 256; i++) {
  let c = i;
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ POLYNOMIAL : c >>> 1;
  tables[0][i] = c >>> 0;
}
for (let i = 0; i < 256; i++) {
  for (let t = 1; t < 8; t++) {
    const c = tables[t - 1][i];
    tables[t][i] = (tables[0][c & 255] ^ (c >>> 8)) >>> 0;
  }
}
const [t0, t1, t2, t3, t4, t5, t6, t7] = tables;

/** The checksum of b, or with that of bytes before it, of both. */
export function crc32c(b, before = 0) {
  let c = ~before;
  let i = 0;
  for (const n = b.length - 7; i < n; i += 8) {
    c ^= b[i] | (b[i + 1] << 8) | (b[i + 2] << 16) | (b[i + 3] << 24);
    c = t7[c & 255] ^ t6[(c >>> 8) & 255] ^ t5[(c >>> 16) & 255] ^ t4[c >>> 24] ^ t3[b[i + 4]] ^ t2[b[i + 5]] ^ t1[b[i + 6]] ^ t0[b[i + 7]];
  }
  for (; i < b.length; i++) c = t0[(c ^ b[i]) & 255] ^ (c >>> 8);
  return ~c >>> 0;
}
