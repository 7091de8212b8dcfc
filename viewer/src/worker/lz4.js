// LZ4 blocks, inflated to exactly the size that is declared. The compressors that
// come with the reader of Parquet take a block that holds nothing, which every
// writer makes of an empty page, for a damaged one, and give zeros where a block
// is too short.

/** Inflates one block from src[from:to] into all of dst[at:end]. */
function block(src, from, to, dst, at, end) {
  const damaged = (why) => new Error(`the LZ4 block is damaged: ${why}`);
  let i = from;
  let o = at;
  /** A length that goes on in bytes of 255. */
  const more = (n) => {
    for (let b = 255; b === 255;) {
      if (i >= to) throw damaged('it ends inside a length');
      b = src[i++];
      n += b;
    }
    return n;
  };
  for (;;) {
    if (i >= to) throw damaged('it ends before its last literals');
    const token = src[i++];
    let n = token >> 4;
    if (n === 15) n = more(n);
    if (n > to - i || n > end - o) throw damaged('literals beyond its end');
    dst.set(src.subarray(i, i + n), o);
    i += n;
    o += n;
    if (i === to) break;
    if (to - i < 2) throw damaged('it ends inside an offset');
    const back = src[i] | (src[i + 1] << 8);
    i += 2;
    if (back === 0 || back > o - at) throw damaged(`it copies from ${back} bytes back, of ${o - at}`);
    n = token & 15;
    if (n === 15) n = more(n);
    n += 4;
    if (n > end - o) throw damaged('a copy beyond its end');
    if (back >= n) dst.copyWithin(o, o - back, o - back + n);
    else for (let k = 0; k < n; k++) dst[o + k] = dst[o + k - back];
    o += n;
  }
  if (o !== end) throw damaged(`it holds ${o - at} bytes, not ${end - at}`);
}

/** The codec LZ4_RAW: one block. */
export function lz4Raw(src, size) {
  const dst = new Uint8Array(size);
  block(src, 0, src.length, dst, 0, size);
  return dst;
}

/** The codec LZ4, as Hadoop frames it: blocks, each behind its two sizes; or one bare block. */
export function lz4(src, size) {
  return framed(src, size) ?? lz4Raw(src, size);
}

/** Null when it is not framed. */
function framed(src, size) {
  const dst = new Uint8Array(size);
  const view = new DataView(src.buffer, src.byteOffset, src.length);
  let i = 0;
  let o = 0;
  while (i < src.length) {
    if (src.length - i < 8) return null;
    const plain = view.getUint32(i);
    const packed = view.getUint32(i + 4);
    i += 8;
    if (packed > src.length - i || plain > size - o) return null;
    try {
      block(src, i, i + packed, dst, o, o + plain);
    } catch {
      return null;
    }
    i += packed;
    o += plain;
  }
  return o === size ? dst : null;
}
