// Reading the Parquet file in a Segment with hyparquet: what its footer says, and
// its rows. hyparquet gives the values as they are stored, of columns under names
// of our own, since theirs may be anything and any may be there twice; what they
// stand for is worked out here, exactly.

import { parquetMetadata, parquetReadObjects, parquetSchema } from 'hyparquet';
import { deserializeTCompactProtocol } from 'hyparquet/src/thrift.js';
import { compressors } from './inflate.js';
import { checkChunk } from './pages.js';
import { bytesText, leafText, quoted } from './values.js';

/** The most characters that a cell shows. */
const MAX_CELL = 400;

/** Nothing is parsed by hyparquet; INT96 it gives in nanoseconds. */
const same = (v) => v;
const parsers = {
  timestampFromMilliseconds: same, timestampFromMicroseconds: same, timestampFromNanoseconds: same, dateFromDays: same,
  stringFromBytes: same, jsonFromBytes: same, geometryFromBytes: same, geographyFromBytes: same, uuidFromBytes: same,
};

let file;
let bytes; // the whole file
let metadata; // under names of our own
let columns; // the top of the schema: trees of {element, children, key}
let leaves; // {element, path, top, schemaPath}, in order

const is = (n, ...types) => types.includes(n.element.converted_type) || types.includes(n.element.logical_type?.type);
const cut = (s) => (s.length > MAX_CELL ? `${s.slice(0, MAX_CELL)}…` : s);

/** A value as text: what is no more than one value bare, of lists, structs and maps the texts quoted. */
function cell(v, node) {
  if (v === undefined || v === null) return null;
  const parts = [];
  let length = 0;
  const put = (s) => {
    length += s.length;
    parts.push(s);
    return length <= MAX_CELL;
  };
  const repeated = node.element.repetition_type === 'REPEATED';
  if (!node.children.length && !repeated) return cut(leafText(v, node.element));
  write(v, node, repeated, put);
  return cut(parts.join(''));
}

/** Writes a nested value until put gives false. repeated: it is the list that a repeated field is. */
function write(v, node, repeated, put) {
  if (v === undefined || v === null) return put('null');
  const each = (list, one, [open, close]) => {
    put(open);
    for (let i = 0; i < list.length; i++) if ((i > 0 && !put(',')) || !one(list[i])) return false;
    return put(close);
  };
  if (repeated) return each(Array.isArray(v) ? v : [v], (x) => write(x, node, false, put), '[]');
  if (!node.children.length) return put(quoted(v, node.element));
  const only = node.children[0];
  if (node.list) {
    // What hyparquet took as a list is one already.
    const item = only.children.length === 1 ? only.children[0] : only;
    return each(v, (x) => write(x, item, item !== only && item.element.repetition_type === 'REPEATED', put), '[]');
  }
  if (is(node, 'MAP', 'MAP_KEY_VALUE') && node.children.length === 1 && only.element.repetition_type === 'REPEATED' && only.children.length >= 1 && only.children.length <= 2) {
    // Pairs in their order: a key may be there twice.
    const [key, value] = only.children;
    return each(v[only.key] ?? [], (x) => write(x[key.key], key, false, put) && put(':') && (value ? write(x[value.key], value, value.element.repetition_type === 'REPEATED', put) : put('null')), '{}');
  }
  return each(node.children, (c) => put(`${JSON.stringify(c.element.name)}:`) && write(v[c.key], c, c.element.repetition_type === 'REPEATED', put), '{}');
}

/** The schema as trees, and a copy of it under names of our own without what hyparquet would convert by. */
function rename(m) {
  const plain = m.schema.map((e, i) => ({
    ...e, name: `n${i}`, scale: undefined, logical_type: undefined,
    converted_type: e.num_children && (e.converted_type === 'LIST' || e.logical_type?.type === 'LIST') ? 'LIST' : undefined,
  }));
  const bare = parquetSchema({ ...m, schema: plain });
  leaves = [];
  let at = 0;
  const walk = (node, path, top, schemaPath) => {
    const element = m.schema[at++];
    const out = { element, key: node.element.name, children: [] };
    const [first] = node.children;
    out.list = node.element.converted_type === 'LIST' && node.children.length === 1 && first.children.length <= 1 && first.element.repetition_type === 'REPEATED';
    const names = path ? [...path, element.name] : [];
    node.children.forEach((c, i) => out.children.push(walk(c, names, top ?? i, [...schemaPath, c])));
    if (!node.children.length && path) leaves.push({ element, path: names.join('.'), key: node.path, top, schemaPath });
    return out;
  };
  columns = walk(bare, null, null, [bare]).children;
  metadata = {
    ...m, schema: plain,
    row_groups: m.row_groups.map((g) => ({ ...g, columns: g.columns.map((c, i) => (c.meta_data && leaves[i] ? { ...c, meta_data: { ...c.meta_data, path_in_schema: leaves[i].key } } : c)) })),
  };
}

/** What a footer has of the least and the greatest values, as they are stored: [group][column] → {min, max}. */
function statistics(all, length) {
  const footer = deserializeTCompactProtocol({ view: new DataView(all.buffer, all.byteOffset, all.byteLength), offset: all.byteLength - 8 - length });
  return footer.field_4.map((g) => g.field_1.map((c) => {
    const s = c.field_3?.field_12;
    return { min: s?.field_6 ?? s?.field_2, max: s?.field_5 ?? s?.field_1 };
  }));
}

/** A value of the statistics as text, null where there is none: bytes in the form of a page's. */
function bound(b, element) {
  if (!(b instanceof Uint8Array)) return null;
  const v = new DataView(b.buffer, b.byteOffset, b.byteLength);
  const wide = { BOOLEAN: 1, INT32: 4, INT64: 8, FLOAT: 4, DOUBLE: 8 }[element.type];
  if (wide && b.length !== wide) return bytesText(b);
  const read = {
    BOOLEAN: () => b[0] === 1, INT32: () => v.getInt32(0, true), INT64: () => v.getBigInt64(0, true), FLOAT: () => v.getFloat32(0, true), DOUBLE: () => v.getFloat64(0, true),
  }[element.type];
  // The order of INT96 is not defined, its bytes are shown as they are.
  return cut(read ? leafText(read(), element) : element.type === 'INT96' ? bytesText(b) : leafText(b, element));
}

/** What a page asks: open({bytes}), then rows({columns, from, count}). */
export const ops = {
  open({ bytes: all }) {
    bytes = new Uint8Array(all);
    file = { byteLength: all.byteLength, slice: (a, b) => all.slice(a, b) };
    const m = parquetMetadata(all, { parsers, geoparquet: false });
    rename(m);
    const stats = statistics(bytes, m.metadata_length);
    return {
      rows: Number(m.num_rows), version: m.version, created: m.created_by ?? '',
      metadataLength: m.metadata_length,
      pairs: (m.key_value_metadata ?? []).map((p) => [p.key, cut(String(p.value ?? ''))]),
      columns: columns.map((c) => c.element.name),
      leaves: leaves.map(({ element: e, path }) => ({ path, type: e.type, logical: e.logical_type?.type ?? e.converted_type, repetition: e.repetition_type })),
      groups: m.row_groups.map((g, i) => ({
        rows: Number(g.num_rows), bytes: Number(g.total_byte_size),
        columns: g.columns.map((c, j) => {
          const d = c.meta_data;
          const leaf = leaves[j];
          return {
            leaf: j, top: leaf?.top ?? -1, path: d?.path_in_schema.join('.') ?? '', codec: d?.codec, encodings: d?.encodings, values: Number(d?.num_values ?? 0),
            packed: Number(d?.total_compressed_size ?? 0), raw: Number(d?.total_uncompressed_size ?? 0),
            offset: Number(d?.dictionary_page_offset || d?.data_page_offset || 0),
            min: leaf ? bound(stats[i][j].min, leaf.element) : null, max: leaf ? bound(stats[i][j].max, leaf.element) : null,
            nulls: d?.statistics?.null_count === undefined ? null : Number(d.statistics.null_count),
          };
        }),
      })),
    };
  },

  /**
   * Rows of columns by their numbers: {rows, wrong}, wrong [{column, message}] of
   * those that can't be read, whose cells are ''. One column is read at a time.
   */
  async rows({ columns: chosen, from, count }) {
    const rows = Array.from({ length: count }, () => chosen.map(() => ''));
    const wrong = [];
    for (const [i, n] of chosen.entries()) {
      const node = columns[n];
      try {
        checkColumn(n, from, from + count);
        const list = await parquetReadObjects({ file, metadata, columns: [node.key], rowStart: from, rowEnd: from + count, compressors, parsers, utf8: false });
        for (let r = 0; r < Math.min(count, list.length); r++) rows[r][i] = cell(list[r][node.key], node);
      } catch (e) {
        wrong.push({ column: n, message: e.message || String(e) });
      }
    }
    return { rows, wrong };
  },
};

/** Holds what rows of a column cost against the limits before they are decoded. */
function checkColumn(n, from, to) {
  let start = 0;
  for (const g of metadata.row_groups) {
    const rows = Number(g.num_rows);
    if (start < to && start + rows > from) {
      if (g.columns.length !== leaves.length) throw new Error(`a row group has ${g.columns.length} columns, the schema ${leaves.length}`);
      leaves.forEach((leaf, j) => {
        if (leaf.top === n) checkChunk(bytes, g.columns[j].meta_data, leaf, Math.max(0, from - start), Math.min(rows, to - start));
      });
    }
    start += rows;
  }
}
