// Inflating brotli to a size that is known, whatever the input claims. The
// library gives the bytes that it was asked for, however many there were; what it
// writes is counted here, and more room than was asked for it doesn't get.

import { decompressBrotli } from 'hyparquet-compressors/src/brotli.js';
import { BrotliOutput } from 'hyparquet-compressors/src/brotli.streams.js';

let written = 0;
const { write } = BrotliOutput.prototype;
BrotliOutput.prototype.write = function counted(bytes, n) {
  written += n;
  return write.call(this, bytes, n);
};
Object.defineProperty(BrotliOutput.prototype, 'buffer', {
  get() { return this.room; },
  set(room) {
    if (this.room) throw new Error(`it holds more than ${this.room.length} bytes`);
    this.room = room;
  },
});

/** Inflates src to exactly size bytes, or throws. */
export function brotliExactly(src, size) {
  written = 0;
  const out = decompressBrotli(src, size);
  if (written !== size) throw new Error(`it holds ${written} bytes, not ${size}`);
  return out;
}
