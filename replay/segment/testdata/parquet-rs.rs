// Writes testdata/made/parquet-rs-*.parquet: `cargo run OUT` with the crates
// parquet 60 (features arrow, snap, brotli, flate2-rust_backened, lz4, zstd)
// and arrow 60. Its LZ4 is the deprecated codec, in the framing of Hadoop.
use std::{fs::File, sync::Arc};
use arrow::array::*;
use arrow::datatypes::*;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::*;
use parquet::file::properties::*;
use parquet::schema::types::ColumnPath;

fn main() {
    let out = std::env::args().nth(1).unwrap();
    let n = 90i64;
    let mut r: u64 = 9;
    let mut rnd = move || { r ^= r << 13; r ^= r >> 7; r ^= r << 17; r };
    let ts: Vec<u64> = (0..n as u64).map(|i| 1_700_000_000_000_000_000 + i / 2 * 1_000_000_000).collect();
    let opt: Vec<Option<i64>> = (0..n).map(|_| if rnd() % 4 == 0 { None } else { Some(rnd() as i64 >> (rnd() % 60)) }).collect();
    let few: Vec<u64> = (0..n).map(|_| rnd() % 3).collect();
    let f: Vec<f64> = (0..n).map(|_| (rnd() % 1000) as f64 / 7.0).collect();
    let i32s: Vec<Option<i32>> = (0..n).map(|_| if rnd() % 5 == 0 { None } else { Some(rnd() as i32) }).collect();
    let s: Vec<Option<String>> = (0..n).map(|_| match rnd() % 4 { 0 => None, 1 => Some(String::new()), k => Some(format!("label/{}/{}", k, rnd() % 9)) }).collect();
    let b: Vec<Option<bool>> = (0..n).map(|_| match rnd() % 3 { 0 => None, k => Some(k == 1) }).collect();
    let mut hist = ListBuilder::new(UInt64Builder::new());
    for _ in 0..n {
        match rnd() % 4 { 0 => hist.append(false), 1 => hist.append(true), _ => { for _ in 0..rnd() % 5 { hist.values().append_value(rnd()); } hist.append(true) } }
    }
    let hist = hist.finish();
    let schema = Arc::new(Schema::new(vec![
        Field::new("timestamp", DataType::UInt64, false), Field::new("i64", DataType::Int64, true), Field::new("few", DataType::UInt64, false),
        Field::new("f64", DataType::Float64, false), Field::new("i32", DataType::Int32, true), Field::new("text", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true), Field::new("hist", hist.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![
        Arc::new(UInt64Array::from(ts)), Arc::new(Int64Array::from(opt)), Arc::new(UInt64Array::from(few)), Arc::new(Float64Array::from(f)),
        Arc::new(Int32Array::from(i32s)), Arc::new(StringArray::from(s)), Arc::new(BooleanArray::from(b)), Arc::new(hist)]).unwrap();
    let codecs = [("none", Compression::UNCOMPRESSED), ("snappy", Compression::SNAPPY), ("gzip", Compression::GZIP(GzipLevel::default())),
        ("brotli", Compression::BROTLI(BrotliLevel::default())), ("lz4", Compression::LZ4), ("lz4raw", Compression::LZ4_RAW), ("zstd", Compression::ZSTD(ZstdLevel::default()))];
    for (i, (name, codec)) in codecs.iter().enumerate() {
        for (v, version) in [(1, WriterVersion::PARQUET_1_0), (2, WriterVersion::PARQUET_2_0)] {
            let dict = (i + v) % 2 == 0;
            let mut p = WriterProperties::builder().set_compression(*codec).set_writer_version(version).set_dictionary_enabled(dict)
                .set_max_row_group_row_count(Some(60)).set_data_page_row_count_limit(20).set_write_batch_size(10)
                .set_bloom_filter_enabled(i % 3 == 0).set_bloom_filter_ndv(20);
            if !dict && v == 2 {
                p = p.set_column_encoding(ColumnPath::from("f64"), Encoding::BYTE_STREAM_SPLIT).set_column_encoding(ColumnPath::from("i32"), Encoding::BYTE_STREAM_SPLIT);
            }
            let mut w = ArrowWriter::try_new(File::create(format!("{out}/parquet-rs-{name}-v{v}.parquet")).unwrap(), schema.clone(), Some(p.build())).unwrap();
            w.write(&batch).unwrap();
            w.close().unwrap();
        }
    }
}
