// Reading the Parquet file in a Segment with hyparquet: what its footer says, and
// its rows.

import { parquetMetadata, parquetReadObjects, parquetSchema } from 'hyparquet';
import { time } from '../format.js';
import { compressors } from './inflate.js';

/** The most characters that a cell shows. */
const MAX_CELL = 400;

/** Times to the nanosecond, and what is text as text: nothing is parsed further. */
const text = new TextDecoder();
const parsers = {
  timestampFromMilliseconds: (ms) => time(BigInt(ms) * 1000000n, 'utc'),
  timestampFromMicroseconds: (us) => time(BigInt(us) * 1000n, 'utc'),
  timestampFromNanoseconds: (ns) => time(ns, 'utc'),
  dateFromDays: (days) => time(BigInt(days) * 86400000000000n, 'utc').slice(0, 10),
  jsonFromBytes: (b) => b && text.decode(b),
  geometryFromBytes: (b) => b,
  geographyFromBytes: (b) => b,
};

let file;
let metadata;

function bytes(v) {
  const h = Array.from(v.subarray(0, MAX_CELL / 2), (b) => b.toString(16).padStart(2, '0')).join('');
  return `0x${h}${v.length > MAX_CELL / 2 ? '…' : ''}`;
}

function plain(v) {
  if (v === undefined || v === null) return null;
  if (typeof v === 'bigint') return v.toString();
  if (v instanceof Uint8Array) return bytes(v);
  if (typeof v === 'object') {
    const s = JSON.stringify(v, (k, w) => (typeof w === 'bigint' ? w.toString() : w instanceof Uint8Array ? bytes(w) : w));
    return s.length > MAX_CELL ? `${s.slice(0, MAX_CELL)}…` : s;
  }
  const s = String(v);
  return s.length > MAX_CELL ? `${s.slice(0, MAX_CELL)}…` : s;
}

function leaves(node, path, out) {
  for (const c of node.children) {
    const p = [...path, c.element.name];
    if (c.children.length) leaves(c, p, out);
    else out.push({ path: p.join('.'), type: c.element.type, logical: c.element.logical_type?.type ?? c.element.converted_type, repetition: c.element.repetition_type });
  }
  return out;
}

/** What a page asks: open({bytes}), then rows({columns, from, count}). */
export const ops = {
  open({ bytes: all }) {
    file = { byteLength: all.byteLength, slice: (a, b) => all.slice(a, b) };
    metadata = parquetMetadata(all, { parsers, geoparquet: false });
    const tree = parquetSchema(metadata);
    return {
      rows: Number(metadata.num_rows), version: metadata.version, created: metadata.created_by ?? '',
      metadataLength: metadata.metadata_length,
      pairs: (metadata.key_value_metadata ?? []).map((p) => [p.key, plain(p.value ?? '')]),
      columns: tree.children.map((c) => c.element.name),
      leaves: leaves(tree, [], []),
      groups: metadata.row_groups.map((g) => ({
        rows: Number(g.num_rows), bytes: Number(g.total_byte_size),
        columns: g.columns.map((c) => {
          const m = c.meta_data;
          const s = m?.statistics;
          return {
            path: m?.path_in_schema.join('.') ?? '', codec: m?.codec, encodings: m?.encodings, values: Number(m?.num_values ?? 0),
            packed: Number(m?.total_compressed_size ?? 0), raw: Number(m?.total_uncompressed_size ?? 0),
            offset: Number(m?.dictionary_page_offset || m?.data_page_offset || 0),
            min: plain(s?.min_value ?? s?.min), max: plain(s?.max_value ?? s?.max), nulls: s?.null_count === undefined ? null : Number(s.null_count),
          };
        }),
      })),
    };
  },

  async rows({ columns, from, count }) {
    const list = await parquetReadObjects({ file, metadata, columns, rowStart: from, rowEnd: from + count, compressors, parsers, utf8: false });
    return list.map((r) => columns.map((c) => plain(r[c])));
  },
};
