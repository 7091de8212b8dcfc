#!/usr/bin/env python3
"""Makes the files and goldens of this folder. Needs pyarrow (made with 26.0).

  python3 make.py made     writes made/*.parquet with pyarrow: every codec that it
                           writes, each encoding, both page versions, with and
                           without dictionaries, nested, optional and empty
  python3 make.py others   adds files of DuckDB 2.0, Polars 2.1 and
                           fastparquet 2026.9; parquet-rs.rs wrote parquet-rs-*
  python3 make.py golden   reads real/ and made/ with pyarrow and writes
                           golden.json: of each column two numbers and a hash

real/ are the Segment frames' bytes of streams that the dendro crate and the
telemetry producer wrote; claims.json is what those frames said.

The hash of a column is sha256(sha256(L) + sha256(V)). L is two bytes for each
entry, the repetition and the definition level, as shredded below from the
values that pyarrow gives (not taken from the file's own levels). V is the
values that are not null: fixed-width ones little-endian as they are stored, a
BOOLEAN as a byte of 0 or 1, a BYTE_ARRAY behind its length as a u32.
"""
import decimal, hashlib, json, os, random, struct, sys
import pyarrow as pa
import pyarrow.parquet as pq

here = os.path.dirname(os.path.abspath(__file__))


def pack(phys, width, typ, v):
    if phys == "BOOLEAN":
        return bytes([v])
    if phys == "INT32":
        return struct.pack("<I", v & 0xFFFFFFFF)
    if phys == "INT64":
        return struct.pack("<Q", v & 0xFFFFFFFFFFFFFFFF)
    if phys == "FLOAT":
        return struct.pack("<f", v)
    if phys == "DOUBLE":
        return struct.pack("<d", v)
    if phys == "INT96":  # nanoseconds of the day, Julian day
        day, ns = divmod(v, 86400 * 10**9)
        return struct.pack("<QI", ns, day + 2440588)
    if pa.types.is_decimal(typ):
        n = int(v.scaleb(typ.scale))
        return n.to_bytes(width, "big", signed=True)
    if isinstance(v, str):
        v = v.encode()
    return v if phys == "FIXED_LEN_BYTE_ARRAY" else struct.pack("<I", len(v)) + v


class Leaf:
    def __init__(self, col):
        self.phys, self.width = col.physical_type, col.length
        self.name, self.l, self.v = col.path, hashlib.sha256(), hashlib.sha256()
        self.entries = self.values = 0

    def put(self, typ, r, d, v=None):
        self.l.update(bytes([r, d]))
        self.entries += 1
        if v is not None:
            self.v.update(pack(self.phys, self.width, typ, v))
            self.values += 1

    def done(self):
        h = hashlib.sha256(self.l.digest() + self.v.digest()).hexdigest()
        return {"name": self.name, "entries": self.entries, "values": self.values, "sha256": h}


def nested(t):
    return pa.types.is_list(t) or pa.types.is_large_list(t)


def count(t):
    if nested(t):
        return count(t.value_type)
    if pa.types.is_map(t):
        return count(t.key_type) + count(t.item_type)
    if pa.types.is_struct(t):
        return sum(count(f.type) for f in t)
    return 1


def shred(field, v, r, d, depth, leaves, at):
    """Dremel shredding of one value; gives the number of the next leaf."""
    t = field.type
    n = count(t)
    if field.nullable:
        if v is None:
            for k in range(n):
                leaves[at + k].put(t, r, d)
            return at + n
        d += 1
    if pa.types.is_struct(t):
        for f in t:
            at = shred(f, v[f.name], r, d, depth, leaves, at)
        return at
    if nested(t) or pa.types.is_map(t):
        if len(v) == 0:
            for k in range(n):
                leaves[at + k].put(t, r, d)
            return at + n
        for i, x in enumerate(v):
            rr = r if i == 0 else depth + 1
            if pa.types.is_map(t):
                shred(t.key_field, x[0], rr, d + 1, depth + 1, leaves, at)
                shred(t.item_field, x[1], rr, d + 1, depth + 1, leaves, at + count(t.key_type))
            else:
                shred(t.value_field, x, rr, d + 1, depth + 1, leaves, at)
        return at + n
    leaves[at].put(t, r, d, v)
    return at + 1


def raw(a):
    """Times as their numbers."""
    t = a.type
    if pa.types.is_timestamp(t) or pa.types.is_time64(t) or pa.types.is_duration(t):
        return a.cast(pa.int64())
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return a.cast(pa.int32())
    return a


def golden(path):
    f = pq.ParquetFile(path)
    leaves = [Leaf(f.metadata.schema.column(i)) for i in range(f.metadata.num_columns)]
    table = f.read()
    at = 0
    for i, field in enumerate(table.schema):
        for part in table.column(i).chunks:
            part = raw(part)
            fl = pa.field(field.name, part.type, field.nullable)
            for v in part.to_pylist():
                shred(fl, v, 0, 0, 0, leaves, at)
        at += count(field.type)
    return {"rows": f.metadata.num_rows, "columns": [l.done() for l in leaves]}


def table(n):
    rnd = random.Random(7)
    some = lambda f: [None if rnd.random() < 0.2 else f() for _ in range(n)]
    every = lambda f: [f() for _ in range(n)]
    word = lambda: rnd.choice(["", "a", "grün", "λόγος", "prefix/one", "prefix/two", "x" * 40])
    i64 = lambda: rnd.choice([0, 1, -1, 2**63 - 1, -(2**63), rnd.randrange(-(10**12), 10**12)])
    i32 = lambda: rnd.choice([0, 1, -1, 2**31 - 1, -(2**31), rnd.randrange(-1000, 1000)])
    f64 = lambda: rnd.choice([0.0, -0.0, float("inf"), float("-inf"), float("nan"), rnd.gauss(0, 1e9)])
    f32 = lambda: struct.unpack("<f", struct.pack("<f", rnd.gauss(0, 100)))[0]
    lists = lambda: rnd.choice([[], [1], [rnd.randrange(2**64) for _ in range(rnd.randrange(9))]])
    ts, t = [], 1_700_000_000_000_000_000
    for i in range(n):
        t += rnd.choice([0, 1, 10**9])
        ts.append(t)
    u = pa.uint64()
    cols = [
        ("timestamp", u, False, ts),
        ("b", pa.bool_(), True, some(lambda: rnd.random() < 0.5)),
        ("b_runs", pa.bool_(), False, [i // 50 % 2 == 0 for i in range(n)]),
        ("i8", pa.int8(), True, some(lambda: rnd.randrange(-128, 128))),
        ("u32", pa.uint32(), False, every(lambda: rnd.randrange(2**32))),
        ("i32", pa.int32(), True, some(i32)),
        ("i64", pa.int64(), True, some(i64)),
        ("i64_few", pa.int64(), False, every(lambda: rnd.randrange(5))),
        ("i64_one", pa.int64(), False, [42] * n),
        ("nothing", pa.int64(), True, [None] * n),
        ("f32", pa.float32(), True, some(f32)),
        ("f64", pa.float64(), True, some(f64)),
        ("date", pa.date32(), True, some(lambda: rnd.randrange(20000))),
        ("micros", pa.timestamp("us"), True, some(lambda: rnd.randrange(10**15))),
        ("text", pa.string(), True, some(word)),
        ("bin", pa.binary(), False, every(lambda: rnd.randbytes(rnd.randrange(12)))),
        ("fixed", pa.binary(5), True, some(lambda: rnd.randbytes(5))),
        ("dec", pa.decimal128(20, 3), True, some(lambda: decimal.Decimal(rnd.randrange(-(10**9), 10**9)).scaleb(-3))),
        ("hist", pa.list_(pa.field("item", u, True)), True, some(lists)),
        ("hist_req", pa.list_(pa.field("item", u, False)), False, every(lists)),
        ("deep", pa.list_(pa.list_(pa.string())), True, some(lambda: rnd.choice([[], [None], [[]], [["a", None], [], ["b"]], [[word() for _ in range(3)]]]))),
        ("rec", pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.list_(pa.float64()), True)]), True,
         some(lambda: {"x": rnd.randrange(99), "y": rnd.choice([None, [], [1.5, None]])})),
        ("map", pa.map_(pa.string(), pa.int64()), True, some(lambda: [(word(), rnd.choice([None, 7])) for _ in range(rnd.randrange(3))])),
    ]
    schema = pa.schema([pa.field(c, t, nn) for c, t, nn, _ in cols])
    return pa.table([pa.array(v, t) for _, t, _, v in cols], schema=schema)


DELTA = {"timestamp": "DELTA_BINARY_PACKED", "i8": "DELTA_BINARY_PACKED", "u32": "DELTA_BINARY_PACKED", "i32": "DELTA_BINARY_PACKED",
         "i64": "DELTA_BINARY_PACKED", "i64_few": "DELTA_BINARY_PACKED", "i64_one": "DELTA_BINARY_PACKED", "nothing": "DELTA_BINARY_PACKED",
         "date": "DELTA_BINARY_PACKED", "micros": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "bin": "DELTA_LENGTH_BYTE_ARRAY",
         "fixed": "DELTA_BYTE_ARRAY", "dec": "DELTA_BYTE_ARRAY", "f32": "BYTE_STREAM_SPLIT", "f64": "BYTE_STREAM_SPLIT",
         "b": "RLE", "b_runs": "RLE", "hist.list.item": "DELTA_BINARY_PACKED", "hist_req.list.item": "DELTA_BINARY_PACKED",
         "deep.list.element.list.element": "DELTA_BYTE_ARRAY", "rec.x": "DELTA_BINARY_PACKED", "rec.y.list.element": "BYTE_STREAM_SPLIT",
         "map.key_value.key": "DELTA_LENGTH_BYTE_ARRAY"}
SPLIT = {c: "BYTE_STREAM_SPLIT" for c in ("timestamp", "u32", "i32", "i64", "i64_few", "i64_one", "fixed", "dec", "f32", "f64", "date")}


def made():
    out = os.path.join(here, "made")
    os.makedirs(out, exist_ok=True)
    t = table(140)
    for codec in ("NONE", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD"):
        for v in ("1.0", "2.0"):
            for enc in ("plain", "dictionary", "delta", "split"):
                # Every codec with every page version; the encodings beyond
                # PLAIN and dictionaries with two codecs.
                if enc in ("delta", "split") and codec not in ("NONE", "ZSTD"):
                    continue
                if enc == "delta":
                    kw = {"use_dictionary": False, "column_encoding": DELTA}
                elif enc == "split":
                    kw = {"use_dictionary": False, "column_encoding": SPLIT}
                else:
                    kw = {"use_dictionary": enc == "dictionary"}
                name = f"{codec.lower()}-v{v[0]}-{enc}.parquet"
                pq.write_table(t, os.path.join(out, name), compression=codec, data_page_version=v, data_page_size=512, write_batch_size=64,
                               row_group_size=90, write_page_checksum=v == "2.0", write_page_index=enc == "plain", store_schema=False, **kw)
    one = lambda **c: pa.table({k: v for k, v in c.items()})
    ts = pa.array([1, 2, 3, 3, 4], pa.int64())
    pq.write_table(t.slice(0, 0), os.path.join(out, "empty.parquet"), compression="ZSTD", store_schema=False)
    pq.write_table(t.slice(0, 1), os.path.join(out, "one-row.parquet"), compression="LZ4", store_schema=False)
    pq.write_table(one(timestamp=ts), os.path.join(out, "format-1.0.parquet"), version="1.0", compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=ts.cast(pa.timestamp("ns"))), os.path.join(out, "int96.parquet"), use_deprecated_int96_timestamps=True, compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=ts.cast(pa.timestamp("us"))), os.path.join(out, "micros.parquet"), compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=ts.cast(pa.timestamp("ns"))), os.path.join(out, "nanos.parquet"), compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=pa.array([1, 3, 2], pa.int64())), os.path.join(out, "unsorted.parquet"), compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=pa.array([1, None, 2], pa.int64())), os.path.join(out, "null-times.parquet"), compression="NONE", store_schema=False)
    pq.write_table(one(time=ts), os.path.join(out, "no-times.parquet"), compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=pa.array(["1", "2"])), os.path.join(out, "text-times.parquet"), compression="NONE", store_schema=False)
    pq.write_table(one(timestamp=pa.array([-5, -3, 0, 2], pa.int64())), os.path.join(out, "before-1970.parquet"), compression="NONE", store_schema=False)


def others():
    """Files of other writers; needs duckdb, polars, fastparquet and pandas."""
    import duckdb, fastparquet, polars
    t = table(60).drop_columns(["map", "rec", "deep", "dec", "hist", "hist_req", "date"])
    out = lambda f: os.path.join(here, "made", f)
    for codec in ("zstd", "lz4_raw"):
        for v in ("v1", "v2"):
            # pyarrow can't read the deltas that DuckDB makes of 32-bit numbers.
            flat = t if v == "v1" else t.drop_columns(["u32", "i32"])
            duckdb.sql(f"copy flat to '{out(f'duckdb-{codec}-{v}.parquet')}' (format parquet, compression {codec}, parquet_version {v})")
    polars.from_arrow(t).write_parquet(out("polars-snappy.parquet"), compression="snappy", row_group_size=25)
    polars.from_arrow(t).write_parquet(out("polars-gzip.parquet"), compression="gzip", data_page_size=256)
    for codec in (None, "LZ4", "ZSTD"):
        fastparquet.write(out(f"fastparquet-{codec}.parquet"), t.to_pandas(), compression=codec, row_group_offsets=25)


def goldens():
    all = {}
    for d in ("real", "made"):
        for f in sorted(os.listdir(os.path.join(here, d))):
            if f.endswith(".parquet"):
                all[d + "/" + f] = golden(os.path.join(here, d, f))
    with open(os.path.join(here, "golden.json"), "w") as out:
        out.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in all.items()) + "\n}\n")


if __name__ == "__main__":
    {"made": made, "others": others, "golden": goldens}[sys.argv[1]]()
