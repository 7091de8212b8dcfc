// The binary form in which the page hands configurations to the decoder: the
// writing side of wasm/packed.

const text = new TextEncoder();

export class Packer {
  constructor() {
    this.bytes = new Uint8Array(256);
    this.length = 0;
  }

  room(n) {
    if (this.length + n > this.bytes.length) {
      const grown = new Uint8Array(Math.max(2 * this.bytes.length, this.length + n));
      grown.set(this.bytes.subarray(0, this.length));
      this.bytes = grown;
    }
  }

  /** An unsigned number: a BigInt up to 64 bits or an exact Number. */
  uint(v) {
    this.room(10);
    if (typeof v === 'number' && v < 0x80000000) {
      for (; v > 127; v >>>= 7) this.bytes[this.length++] = (v & 127) | 128;
      this.bytes[this.length++] = v;
      return this;
    }
    v = BigInt(v);
    for (; v > 127n; v >>= 7n) this.bytes[this.length++] = Number(v & 127n) | 128;
    this.bytes[this.length++] = Number(v);
    return this;
  }

  /** A signed number. */
  int(v) {
    v = BigInt(v);
    return this.uint(BigInt.asUintN(64, (v << 1n) ^ (v >> 63n)));
  }

  raw(b) {
    this.room(b.length);
    this.bytes.set(b, this.length);
    this.length += b.length;
    return this;
  }

  data(b) {
    return this.uint(b.length).raw(b);
  }

  string(s) {
    return this.data(text.encode(s));
  }

  list(numbers) {
    this.uint(numbers.length);
    for (const n of numbers) this.uint(n);
    return this;
  }

  done() {
    return this.bytes.subarray(0, this.length);
  }
}

/** The packed form of a sidecar's context (docs/capture-format.md), null for none. */
export function packContext(c) {
  const p = new Packer();
  if (!c) return p.uint(0).done();
  p.uint(1).string(String(c.protocol)).uint(c.version >>> 0).uint(c.entries.length);
  for (const e of c.entries) {
    p.uint(BigInt(e.id)).uint(e.values.length);
    for (const v of e.values) {
      p.string(String(v.name));
      if ((v.bytes ?? null) === null) p.uint(0).uint(BigInt(v.number));
      else p.uint(1).data(fromBase64(v.bytes));
    }
  }
  const omitted = c.omitted ?? [];
  p.uint(omitted.length);
  for (const s of omitted) p.string(String(s));
  return p.done();
}

/** The packed form of the context of a reader that starts in the middle. */
export function packMidStream(protocol) {
  return new Packer().uint(1).string(protocol).uint(0).uint(0).uint(0).done();
}

export function fromBase64(s) {
  const raw = atob(s);
  const b = new Uint8Array(raw.length);
  for (let i = 0; i < b.length; i++) b[i] = raw.charCodeAt(i);
  return b;
}
