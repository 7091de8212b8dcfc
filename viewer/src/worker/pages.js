// What the pages of a column chunk cost, before they are decoded: a few bytes can
// say that a million values follow. Where what they hold has no length of its own,
// runs and deltas, it is walked.

import { parquetHeader } from 'hyparquet/src/column.js';
import { deltaBinaryUnpack } from 'hyparquet/src/delta.js';
import { getMaxDefinitionLevel, getMaxRepetitionLevel, isFlatColumn } from 'hyparquet/src/schema.js';
import { readVarInt, readZigZagBigInt } from 'hyparquet/src/thrift.js';
import { compressors } from './inflate.js';

/** The most values of a column that are decoded for some rows of it. */
export const MAX_VALUES = 4 << 20;
/** The same of values that become an object each: bytes, and what lies in lists. */
export const MAX_OBJECTS = 512 << 10;
/** The most decoded bytes of a page, and of all pages of a column that some rows need. */
export const MAX_PAGE_BYTES = 64 << 20;
export const MAX_COLUMN_BYTES = 128 << 20;
/** The largest block of deltas, in values, and how many parts it has. */
const MAX_DELTA_BLOCK = 1 << 16;
const MAX_DELTA_PARTS = 512;

const count = (n) => n.toLocaleString('en');

function limit(what, has, most) {
  if (has > most) throw new Error(`${what} ${count(has)}, more than the ${count(most)} that are read here`);
}

const OBJECTS = ['BYTE_ARRAY', 'FIXED_LEN_BYTE_ARRAY', 'INT96'];

/**
 * Walks the pages of a chunk that rows from selectStart to selectEnd of its group
 * need, and throws where they cost more than the limits or lie outside of the file.
 * It takes the same pages as hyparquet does.
 */
export function checkChunk(file, meta, leaf, selectStart, selectEnd) {
  if (!meta) throw new Error('a column has no metadata');
  if (meta.type !== leaf.element.type) throw new Error(`a column chunk is of type ${meta.type}, its column of ${leaf.element.type}`);
  const from = Number(meta.dictionary_page_offset || meta.data_page_offset);
  const end = from + Number(meta.total_compressed_size);
  if (!(from >= 0 && from <= end && end <= file.length)) throw new Error(`a column chunk lies at ${from} to ${end}, outside of the file of ${file.length} bytes`);
  const flat = isFlatColumn(leaf.schemaPath);
  const reader = { view: new DataView(file.buffer, file.byteOffset + from, end - from), offset: 0 };
  let [rows, values, objects, bytes] = [0, 0, 0, 0];
  while (reader.offset < reader.view.byteLength - 1 && (!flat || rows < selectEnd)) {
    const at = reader.offset;
    const h = parquetHeader(reader);
    const [size, raw] = [h.compressed_page_size, h.uncompressed_page_size];
    const head = h.data_page_header ?? h.data_page_header_v2 ?? h.dictionary_page_header;
    if (!head || !(size >= 0 && reader.offset + size <= reader.view.byteLength) || !(raw >= 0) || !(head.num_values >= 0)) throw new Error(`the page at ${from + at} is none`);
    const body = new Uint8Array(file.buffer, file.byteOffset + from + reader.offset, size);
    reader.offset += size;
    const skip = h.type === 'DATA_PAGE' ? flat && selectStart - rows > head.num_values && head.num_values
      : h.type === 'DATA_PAGE_V2' && selectStart - rows > head.num_rows && head.num_rows;
    if (skip) {
      rows += skip;
      continue;
    }
    const n = head.num_values;
    const nested = !flat && h.type !== 'DICTIONARY_PAGE';
    const dictionary = /_DICTIONARY$/.test(head.encoding) && h.type !== 'DICTIONARY_PAGE';
    limit('a page says that its decoded bytes are', raw, MAX_PAGE_BYTES);
    bytes += raw;
    limit('the pages of these rows say that their decoded bytes are', bytes, MAX_COLUMN_BYTES);
    limit('a page says that its values are', n, MAX_VALUES);
    values += n;
    limit('the values in the pages of these rows are', values, MAX_VALUES);
    if (nested || (!dictionary && OBJECTS.includes(leaf.element.type))) {
      objects += n;
      limit(`the ${nested ? 'values in lists' : 'values'} in the pages of these rows are`, objects, MAX_OBJECTS);
    }
    if (h.type !== 'DICTIONARY_PAGE') checkPage(h, head, body, meta, leaf);
    rows += h.type === 'DATA_PAGE' ? n : h.type === 'DATA_PAGE_V2' ? head.num_rows : 0;
  }
}

function unpacked(body, size, codec) {
  if (codec === 'UNCOMPRESSED' || !compressors[codec]) return body; // hyparquet says what is wrong with it
  return compressors[codec](body, size);
}

/** Walks what a data page holds in runs, deltas and streams. */
function checkPage(h, head, body, meta, { schemaPath, element }) {
  const n = head.num_values;
  const [rep, def] = [getMaxRepetitionLevel(schemaPath), getMaxDefinitionLevel(schemaPath)];
  let r;
  if (h.data_page_header_v2) {
    const [a, b] = [head.repetition_levels_byte_length, head.definition_levels_byte_length];
    if (!(a >= 0 && b >= 0 && a + b <= body.length)) throw new Error('the levels of a page are longer than it');
    const levels = { view: view(body), offset: 0 };
    if (rep) runs(levels, width(rep), n, a);
    if (def) runs(levels, width(def), n, a + b);
    const rest = body.subarray(a + b);
    r = { view: view(head.is_compressed ? unpacked(rest, h.uncompressed_page_size - a - b, meta.codec) : rest), offset: 0 };
  } else {
    r = { view: view(unpacked(body, h.uncompressed_page_size, meta.codec)), offset: 0 };
    for (const most of [rep, def]) {
      if (!most) continue;
      const length = r.view.getUint32(r.offset, true);
      r.offset += 4;
      const end = r.offset + length;
      runs(r, width(most), n, end);
      r.offset = end;
    }
  }
  const { encoding } = head;
  if (/_DICTIONARY$/.test(encoding)) {
    if (r.offset < r.view.byteLength) {
      const bits = r.view.getUint8(r.offset++);
      if (bits > 32) throw new Error(`the indexes of a page are ${bits} bits wide`);
      if (bits) runs(r, bits, n, r.view.byteLength);
    }
  } else if (encoding === 'RLE') {
    runs({ view: r.view, offset: r.offset + 4 }, 1, n, r.view.byteLength);
  } else if (encoding === 'BYTE_STREAM_SPLIT') {
    const wide = { INT32: 4, FLOAT: 4, INT64: 8, DOUBLE: 8 }[element.type] ?? element.type_length ?? 0;
    limit('a page says that its decoded bytes are', n * wide, MAX_PAGE_BYTES);
  } else if (encoding === 'DELTA_BINARY_PACKED') {
    deltas(r, n);
  } else if (encoding === 'DELTA_LENGTH_BYTE_ARRAY') {
    deltas(r, n);
  } else if (encoding === 'DELTA_BYTE_ARRAY') {
    // Each value begins with some of the one before: together they may be anything.
    const lengths = () => {
      const out = new Int32Array(deltas(r, n));
      if (out.length) deltaBinaryUnpack(r, out.length, out);
      return out;
    };
    const prefixes = lengths();
    const suffixes = lengths();
    let size = 0;
    for (let i = 0; i < prefixes.length; i++) size += Math.max(0, prefixes[i]) + Math.max(0, suffixes[i] ?? 0);
    limit('the decoded bytes of a page are', size, MAX_PAGE_BYTES);
  }
}

const view = (b) => new DataView(b.buffer, b.byteOffset, b.byteLength);
const width = (most) => 32 - Math.clz32(most);

/** Holds runs up to end, of values of so many bits, against the n values that are said. */
function runs(r, bits, n, end) {
  for (let seen = 0; seen < n && r.offset < end;) {
    const header = readVarInt(r);
    const packed = header & 1;
    const values = packed ? (header >>> 1) * 8 : header >>> 1;
    r.offset += packed ? (header >>> 1) * bits : (bits + 7) >> 3;
    // The last of what is packed is filled up.
    const over = packed ? r.offset - end : seen + values - n;
    if (over > (packed ? bits : 0)) throw new Error(`a run of ${count(values)} values goes beyond its page of ${count(n)}`);
    seen += values;
  }
}

/** How many deltas follow, by their header, which stays unread. */
function deltas(r, n) {
  if (n === 0 || r.offset >= r.view.byteLength) return 0;
  const at = r.offset;
  const [block, parts, values] = [readVarInt(r), readVarInt(r), readVarInt(r)];
  readZigZagBigInt(r);
  r.offset = at;
  if (!(block > 0 && block <= MAX_DELTA_BLOCK && parts > 0 && parts <= MAX_DELTA_PARTS)) throw new Error(`the deltas of a page come in blocks of ${count(block >>> 0)} in ${count(parts >>> 0)} parts`);
  if (!(values >= 0 && values <= n)) throw new Error(`${count(values >>> 0)} deltas are in a page of ${count(n)} values`);
  return values;
}
