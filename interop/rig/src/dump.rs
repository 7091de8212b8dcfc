//! An archive's contents in a canonical order, so that two can be compared.
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use dendro::archive::Archive;
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

use crate::frames::sha;

/// The subscriber's own session is the LAST entry of `writer_sessions`; its uuid is
/// random, so it is starred unless --raw.
fn normal(metadata: &BTreeMap<String, String>, raw: bool, strip: bool) -> BTreeMap<String, String> {
    let mut m = metadata.clone();
    if strip {
        m.remove("writer_sessions");
    }
    if !raw {
        if let Some(v) = m.get_mut("writer_sessions") {
            if let Ok(Value::Array(mut a)) = serde_json::from_str::<Value>(v) {
                if let Some(Value::Object(o)) = a.last_mut() {
                    if o.contains_key("session") {
                        o.insert("session".into(), json!("*"));
                    }
                }
                *v = Value::Array(a).to_string();
            }
        }
    }
    m
}

enum Out {
    Print(BufWriter<std::io::Stdout>),
    Hash(Sha256),
}
impl Out {
    fn put(&mut self, s: &str) {
        match self {
            Out::Print(w) => w.write_all(s.as_bytes()).unwrap(),
            Out::Hash(h) => h.update(s.as_bytes()),
        }
    }
}

struct List<'a> {
    out: &'a mut Out,
    n: usize,
}
impl List<'_> {
    fn item(&mut self, v: Value) {
        let sep = if self.n == 0 { "\n   " } else { ",\n   " };
        self.n += 1;
        self.out.put(sep);
        self.out.put(&v.to_string());
    }
}

pub fn run(path: &Path, counts_only: bool, raw: bool, strip: bool) -> Result<(), Box<dyn std::error::Error>> {
    let db = Archive::open(path)?;
    let mut out = if counts_only {
        Out::Hash(Sha256::new())
    } else {
        Out::Print(BufWriter::new(std::io::stdout()))
    };
    let mut c: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sources = db.read_sources()?;
    // stable: two equal sources keep the order they were inserted in
    sources.sort_by_cached_key(|s| {
        (
            json!(s.meta.labels).to_string(),
            s.meta.clock_anchor_wall_ns,
            s.complete,
            json!(normal(&s.meta.metadata, false, strip)).to_string(),
            s.uuid.clone(),
        )
    });
    out.put(&format!("{{\"schema_version\":{},\"sources\":[", db.schema_version()?));
    for (i, s) in sources.iter().enumerate() {
        *c.entry("sources").or_default() += 1;
        out.put(if i == 0 { "\n {" } else { ",\n {" });
        out.put(&format!("\"uuid\":{},\n  ", json!(s.uuid)));
        out.put(&format!("\"labels\":{},\n  ", json!(s.meta.labels)));
        out.put(&format!(
            "\"metadata\":{},\n  ",
            json!(normal(&s.meta.metadata, raw, strip))
        ));
        out.put(&format!(
            "\"complete\":{},\"clock_anchor_wall_ns\":{},\n  ",
            s.complete, s.meta.clock_anchor_wall_ns
        ));
        out.put("\"segments\":[");
        let mut l = List { out: &mut out, n: 0 };
        let streams = db.all_streams(s.id)?;
        for st in &streams {
            let idx: BTreeMap<u64, Option<Vec<u8>>> = db.read_segment_indexes(s.id, st)?.into_iter().collect();
            for (seq, m) in db.read_segment_meta(s.id, st)? {
                let b = db.read_segment_bytes(s.id, st, seq)?.unwrap_or_default();
                *c.entry("segments").or_default() += 1;
                *c.entry("segment_bytes").or_default() += b.len() as u64;
                let ci = idx.get(&seq).cloned().flatten();
                l.item(
                    json!({"stream": st, "seq": seq, "rows": m.rows, "first_ts": m.first_ts, "last_ts": m.last_ts,
                              "len": b.len(), "sha256": sha(&b), "caller_index_sha256": ci.as_deref().map(sha),
                              "caller_index_len": ci.as_ref().map(|x| x.len())}),
                );
            }
        }
        out.put("],\n  \"wal\":[");
        let mut l = List { out: &mut out, n: 0 };
        for st in &streams {
            for r in db.read_wal(s.id, st)? {
                *c.entry("wal_rows").or_default() += 1;
                *c.entry("wal_row_bytes").or_default() += r.row.len() as u64;
                l.item(json!({"stream": r.stream, "ts": r.ts, "wall_offset": r.wall_offset, "len": r.row.len(), "sha256": sha(&r.row)}));
            }
        }
        out.put("],\n  \"clock_offsets\":[");
        let mut l = List { out: &mut out, n: 0 };
        for (ts, off) in db.read_clock_offsets(s.id)? {
            *c.entry("clock_offsets").or_default() += 1;
            l.item(json!([ts, off]));
        }
        out.put("],\n  \"caller_rows\":[");
        let mut l = List { out: &mut out, n: 0 };
        for st in db.caller_row_streams(s.id)? {
            for r in db.read_caller_rows(s.id, &st, i64::MIN, i64::MAX)? {
                *c.entry("caller_rows").or_default() += 1;
                l.item(json!({"stream": st, "ts": r.ts, "len": r.blob.len(), "sha256": sha(&r.blob)}));
            }
        }
        out.put("]}");
    }
    out.put("\n]}\n");
    match out {
        Out::Print(mut w) => w.flush()?,
        Out::Hash(h) => {
            let h: String = h.finalize().iter().map(|x| format!("{x:02x}")).collect();
            let mut v = json!(c);
            v["dump_sha256"] = json!(h);
            println!("{v}");
        }
    }
    Ok(())
}
