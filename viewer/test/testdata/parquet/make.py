# Makes the Parquet files beside it, with pyarrow: values that are hard to show,
# and a few bytes that say that a million values follow.
import datetime
import decimal
import struct

import pyarrow as pa
import pyarrow.parquet as pq

T = 1700000000 * 10**9
D = decimal.Decimal
N = 4
ts = pa.array([T + i * 10**9 for i in range(N)], pa.uint64())


def put(name, columns, names=None, **options):
    t = pa.Table.from_arrays(columns, names=names) if names else pa.table(columns)
    pq.write_table(t, name + '.parquet', **options)


put('numbers', {
    'timestamp': ts,
    'dec38': pa.array([D('12345678901234567890123456789012.123456'), D('-0.1'), None, D(0)], pa.decimal128(38, 6)),
    'dec18': pa.array([D('9007199254740993.01'), D('-0.10'), D('0.05'), D(1)], pa.decimal128(18, 2)),
    'u64': pa.array([2**64 - 1, None, 0, 1], pa.uint64()),
    'u32': pa.array([2**32 - 1, None, 0, 1], pa.uint32()),
    'i64': pa.array([-2**63, 2**63 - 1, 0, None], pa.int64()),
    'f64': pa.array([float('nan'), float('inf'), -0.0, 5e-324], pa.float64()),
    'f32': pa.array([0.1, -float('inf'), -0.0, 16777217.0], pa.float32()),
    'f16': pa.array([1.5, None, float('nan'), -0.0], pa.float16()),
    'lists': pa.array([[float('nan'), float('inf'), -0.0, None], [], None, [0.5]], pa.list_(pa.float64())),
    'decs': pa.array([[D('9007199254740993.01'), None], [], None, [D('0.10')]], pa.list_(pa.decimal128(18, 2))),
    'struct': pa.array([{'__proto__': 2**60 + 1, 'b': b'\xff\x00'}, None, {'__proto__': None, 'b': None}, {'__proto__': 1, 'b': b'ab'}], pa.struct([('__proto__', pa.int64()), ('b', pa.binary())])),
    'map': pa.array([[('k', 1), ('k', 2)], [], None, [('__proto__', None)]], pa.map_(pa.string(), pa.int64())),
    'keys': pa.array([[(2**53 + 1, 1), (2, 2)], [], None, [(1, 1)]], pa.map_(pa.int64(), pa.int64())),
})
put('times', {
    'timestamp': ts,
    'date': pa.array([datetime.date(1, 1, 1), datetime.date(1969, 12, 31), None, datetime.date(9999, 12, 31)], pa.date32()),
    'ns': pa.array([T + 123456789, None, -1, 0], pa.timestamp('ns')),
    'us': pa.array([-1, None, 0, -62135596800000000], pa.timestamp('us', 'UTC')),
    'ms': pa.array([-2**62, None, 0, 1], pa.timestamp('ms')),
    'time': pa.array([1234567890123, None, 0, 86399999999999], pa.time64('ns')),
    'text': pa.array(['\u202eabc\n', '\ufeff', None, ''], pa.string()),
    'bytes': pa.array([b'\xff\xfe', b'ab', None, b''], pa.binary()),
    'fixed': pa.array([b'\x01\x02\x03\x04', None, b'abcd', b'\xff\xff\xff\xff'], pa.binary(4)),
})
put('int96', {'timestamp': ts, 't': pa.array([T + 1, None, -1, 0], pa.timestamp('ns'))}, use_deprecated_int96_timestamps=True)
put('names', [ts] + [pa.array([10 * c + r for r in range(N)]) for c in range(8)] + [pa.array([{'b': r} for r in range(N)])],
    names=['timestamp', 'v', 'v', '__proto__', 'constructor', 'a.b', '', 'length', '\u202ex', 'a'])
put('bounds', {
    'timestamp': ts,
    'bytes': pa.array([bytes([255, i]) for i in range(N)], pa.binary()),
    'text': pa.array(['a', 'b', 'é', 'c'], pa.string()),
    'u64': pa.array([2**64 - 1, 0, 1, 2], pa.uint64()),
    'dec18': pa.array([D('9007199254740993.01'), D('-1'), D(0), D(1)], pa.decimal128(18, 2)),
    'dec38': pa.array([D('12345678901234567890123456789012.123456'), D('-1'), D(0), D(1)], pa.decimal128(38, 6)),
    'date': pa.array([datetime.date(1, 1, 1)] * N),
    'time': pa.array([T + 1] * N, pa.timestamp('ns')),
    'f64': pa.array([-0.0, -0.0, -0.0, -0.0]),
})


# Files of one row group, written by hand.
def zigzag(n):
    return varint((n << 1) ^ (n >> 63))


def varint(n):
    out = b''
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


class Struct:
    def __init__(self):
        self.b, self.last = b'', 0

    def put(self, i, kind, v):
        self.b += bytes([(i - self.last) << 4 | kind]) + v
        self.last = i
        return self

    def i32(self, i, v):
        return self.put(i, 5, zigzag(v))

    def i64(self, i, v):
        return self.put(i, 6, zigzag(v))

    def text(self, i, v):
        return self.put(i, 8, varint(len(v)) + v)

    def sub(self, i, v):
        return self.put(i, 12, v.end())

    def many(self, i, kind, vs):
        return self.put(i, 9, bytes([len(vs) << 4 | kind]) + b''.join(vs))

    def end(self):
        return self.b + b'\0'


PLAIN, RLE_DICTIONARY, DELTA_BYTE_ARRAY = 0, 8, 7
INT64, BYTE_ARRAY = 2, 6


def bomb(name, rows, values, body, kind=INT64, encoding=RLE_DICTIONARY):
    f = b'PAR1'
    start = len(f)
    if encoding == RLE_DICTIONARY:
        f += Struct().i32(1, 2).i32(2, 8).i32(3, 8).sub(7, Struct().i32(1, 1).i32(2, PLAIN)).end() + struct.pack('<q', T)
    page = len(f)
    f += Struct().i32(1, 0).i32(2, len(body)).i32(3, len(body)).sub(5, Struct().i32(1, values).i32(2, encoding).i32(3, 3).i32(4, 3)).end() + body
    size = len(f) - start
    column = Struct().i32(1, kind).many(2, 5, [zigzag(PLAIN), zigzag(encoding)]).many(3, 8, [varint(9) + b'timestamp']).i32(4, 0)
    column.i64(5, values).i64(6, size).i64(7, size).i64(9, page)
    if encoding == RLE_DICTIONARY:
        column.i64(11, start)
    group = Struct().many(1, 12, [Struct().i64(2, 0).sub(3, column).end()]).i64(2, size).i64(3, rows)
    root = Struct().text(4, b'schema').i32(5, 1).end()
    leaf = Struct().i32(1, kind).i32(3, 0).text(4, b'timestamp').end()
    footer = Struct().i32(1, 1).many(2, 12, [root, leaf]).i64(3, rows).many(4, 12, [group.end()]).end()
    open(name + '.parquet', 'wb').write(f + footer + struct.pack('<I', len(footer)) + b'PAR1')


# One run of 100,000,000 values; one that is longer than its page says.
bomb('bomb-values', 100_000_000, 100_000_000, bytes([1]) + varint(100_000_000 << 1) + b'\0')
bomb('bomb-run', 10, 10, bytes([1]) + varint(1_000_000_000 << 1) + b'\0')


# Values of bytes that each begin with 100,000 bytes of the one before.
n, long = 2000, 100_000
prefixes = varint(1 << 16) + varint(1) + varint(n) + zigzag(long) + zigzag(0) + b'\0'
suffixes = varint(1 << 16) + varint(1) + varint(n) + zigzag(long) + zigzag(0) + b'\0'
bomb('bomb-prefixes', n, n, prefixes + suffixes, BYTE_ARRAY, DELTA_BYTE_ARRAY)
# Blocks of deltas in as many parts as there are bytes of memory.
bomb('bomb-parts', 10, 10, varint(1 << 31) + varint((1 << 31) - 1) + varint(10) + zigzag(T) + b'\0', INT64, 5)
