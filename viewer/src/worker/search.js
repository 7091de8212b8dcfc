// Searching bytes: Horspool's method, with ASCII letters of either case alike
// where that is wanted.

const lower = new Uint8Array(256).map((_, i) => (i >= 65 && i <= 90 ? i + 32 : i));
const same = new Uint8Array(256).map((_, i) => i);

export class Pattern {
  constructor(bytes, ignoreCase) {
    this.fold = ignoreCase ? lower : same;
    this.bytes = bytes.map((b) => this.fold[b]);
    this.skip = new Int32Array(256).fill(bytes.length);
    for (let i = 0; i < bytes.length - 1; i++) {
      for (let b = 0; b < 256; b++) if (this.fold[b] === this.bytes[i]) this.skip[b] = bytes.length - 1 - i;
    }
  }

  /** Calls hit with each place in b at which the pattern starts, until it gives false. */
  scan(b, hit) {
    const { bytes, fold, skip } = this;
    const last = bytes.length - 1;
    const end = b.length - bytes.length;
    for (let i = 0; i <= end;) {
      let j = last;
      while (j >= 0 && fold[b[i + j]] === bytes[j]) j--;
      if (j < 0) {
        if (hit(i) === false) return;
        i++;
      } else {
        i += skip[b[i + last]];
      }
    }
  }
}

/** The bytes of "hex de ad be ef" or of text; null for hex that is none. */
export function patternBytes(text, hex) {
  if (!hex) return new TextEncoder().encode(text);
  const digits = text.replace(/0x|[\s,:]/gi, '');
  if (digits.length % 2 || !/^[0-9a-f]*$/i.test(digits)) return null;
  return Uint8Array.from(digits.match(/../g) ?? [], (d) => parseInt(d, 16));
}
