//! Reads every stream of an archive back through the crate, as a reader of its data would: each segment, and the live
//! rows that the crate makes a segment of, is decoded whole by the Parquet library.
use std::path::Path;

use arrow::array::{Array, Int64Array};
use bytes::Bytes;
use dendro::archive::Archive;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;

use crate::enc::RigEncoder;

/// Returns the process's exit code: 1 where a stream can't be read or goes back in time.
pub fn run(path: &Path, encoder: Option<String>) -> Result<i32, Box<dyn std::error::Error>> {
    let db = Archive::open(path)?;
    let encoder = RigEncoder {
        version: encoder,
        caller_index: false,
    };
    let sources = dendro::read::read_archive(&db, &encoder)?;
    let (mut streams, mut segments, mut rows) = (0u64, 0u64, 0u64);
    let mut problems = Vec::new();
    for source in &sources {
        for (stream, files) in &source.streams {
            streams += 1;
            let mut last = None;
            for (i, file) in files.iter().enumerate() {
                segments += 1;
                match timestamps(file.clone()) {
                    Err(e) => problems.push(format!("stream {stream}, segment {i}: {e}")),
                    Ok(ts) => {
                        rows += ts.len() as u64;
                        for t in ts {
                            if last.is_some_and(|l| t <= l) {
                                problems.push(format!("stream {stream}, segment {i}: {t} is not after {last:?}"));
                                break;
                            }
                            last = Some(t);
                        }
                    }
                }
            }
        }
    }
    println!(
        "{}",
        json!({"sources": sources.len(), "streams": streams, "segments": segments, "rows": rows, "problems": problems})
    );
    Ok(i32::from(!problems.is_empty()))
}

/// Decodes every column and gives the time column.
fn timestamps(file: Vec<u8>) -> Result<Vec<i64>, Box<dyn std::error::Error>> {
    let mut all = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file))?.build()? {
        let batch = batch?;
        let column = batch.column_by_name("timestamp").ok_or("no column timestamp")?;
        let ts = column
            .as_any()
            .downcast_ref::<Int64Array>()
            .ok_or("timestamp is not i64")?;
        all.extend_from_slice(ts.values());
    }
    Ok(all)
}
