//! Every frame of a stream as the crate decodes it, one JSON line each.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::rc::Rc;

use dendro::replicate::{wire::FrameReader, Frame, IndexKind};
use serde_json::{json, Value};
use sha2::{Digest, Sha256};

pub fn sha(b: &[u8]) -> String {
    Sha256::digest(b).iter().map(|x| format!("{x:02x}")).collect()
}
fn blob(b: &[u8]) -> Value {
    json!({"len": b.len(), "sha256_16": &sha(b)[..16]})
}

/// Watches the bytes the crate's FrameReader pulls, so each frame's offset is the
/// reader's own and a kind it skips is still seen.
#[derive(Default)]
struct Trace {
    at: u64,
    state: Vec<u8>,    // length bytes so far (after the preamble)
    left: Option<u64>, // payload bytes still to come
    heads: Vec<Head>,
}
struct Head {
    offset: u64,
    len: u32,
    kind: Option<u8>,
}
impl Trace {
    fn feed(&mut self, b: &[u8]) {
        for &x in b {
            let pos = self.at;
            self.at += 1;
            if pos < 14 {
                continue;
            }
            match self.left {
                None => {
                    self.state.push(x);
                    if self.state.len() == 4 {
                        let len = u32::from_le_bytes(self.state[..].try_into().unwrap());
                        self.heads.push(Head {
                            offset: pos - 3,
                            len,
                            kind: None,
                        });
                        self.state.clear();
                        if len > 0 {
                            self.left = Some(len as u64);
                        }
                    }
                }
                Some(n) => {
                    let h = self.heads.last_mut().unwrap();
                    if n == h.len as u64 {
                        h.kind = Some(x);
                    }
                    self.left = if n > 1 { Some(n - 1) } else { None };
                }
            }
        }
    }
    /// Fast path: skip the bulk of a payload without looking at each byte.
    fn feed_fast(&mut self, mut b: &[u8]) {
        while !b.is_empty() {
            match self.left {
                Some(n) if self.at >= 14 && self.heads.last().is_some_and(|h| n < h.len as u64) => {
                    let take = (n as usize).min(b.len());
                    self.at += take as u64;
                    self.left = if n > take as u64 { Some(n - take as u64) } else { None };
                    b = &b[take..];
                }
                _ => {
                    self.feed(&b[..1]);
                    b = &b[1..];
                }
            }
        }
    }
}
struct Tap<R>(R, Rc<RefCell<Trace>>);
impl<R: Read> Read for Tap<R> {
    fn read(&mut self, b: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(b)?;
        self.1.borrow_mut().feed_fast(&b[..n]);
        Ok(n)
    }
}

fn fields(f: &Frame) -> (&'static str, Value) {
    match f {
        Frame::Handshake {
            source,
            uuid,
            labels,
            metadata,
            clock_anchor_wall_ns,
            complete,
        } => (
            "Handshake",
            json!({"source": source, "uuid": uuid, "labels": labels, "metadata": metadata,
                   "clock_anchor_wall_ns": clock_anchor_wall_ns, "complete": complete}),
        ),
        Frame::Index {
            source,
            stream,
            ts,
            kind,
            state,
            blob: b,
        } => (
            "Index",
            json!({"source": source, "stream": stream, "ts": ts,
                   "index_kind": match kind { IndexKind::Full => "full", IndexKind::Delta => "delta" },
                   "state": [state.0, state.1], "blob": blob(b)}),
        ),
        Frame::Rows {
            source,
            seq,
            index_state,
            rows,
        } => (
            "Rows",
            json!({"source": source, "seq": seq, "index_state": [index_state.0, index_state.1], "count": rows.len(),
                   "rows": rows.iter().map(|r| json!({"stream": r.stream, "ts": r.ts, "wall_offset": r.wall_offset, "row": blob(&r.row)})).collect::<Vec<_>>()}),
        ),
        Frame::Segment {
            source,
            stream,
            meta,
            bytes,
            caller_index,
        } => (
            "Segment",
            json!({"source": source, "stream": stream, "rows": meta.rows, "first_ts": meta.first_ts,
                   "last_ts": meta.last_ts, "bytes": blob(bytes), "caller_index": caller_index.as_deref().map(blob)}),
        ),
        Frame::ClockOffset { source, ts, offset_ns } => (
            "ClockOffset",
            json!({"source": source, "ts": ts, "offset_ns": offset_ns}),
        ),
        Frame::SourceUpdate {
            source,
            ts,
            labels,
            metadata,
        } => (
            "SourceUpdate",
            json!({"source": source, "ts": ts, "labels": labels, "metadata": metadata}),
        ),
        _ => ("?", json!({})),
    }
}

struct Sink {
    counts_only: bool,
    hash: Sha256,
    out: BufWriter<std::io::Stdout>,
}
impl Sink {
    fn line(&mut self, v: &Value) {
        let s = format!("{v}\n");
        if self.counts_only {
            self.hash.update(s.as_bytes());
        } else {
            self.out.write_all(s.as_bytes()).unwrap();
        }
    }
}

pub fn run(path: &Path, counts_only: bool) -> i32 {
    let f = match File::open(path) {
        Ok(f) => f,
        Err(e) => {
            eprintln!("{e}");
            return 2;
        }
    };
    let trace = Rc::new(RefCell::new(Trace::default()));
    let mut sink = Sink {
        counts_only,
        hash: Sha256::new(),
        out: BufWriter::new(std::io::stdout()),
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let (mut rows, mut seg_bytes, mut empty) = (0u64, 0u64, 0u64);
    let mut err = None;
    match FrameReader::new(Tap(BufReader::with_capacity(1 << 20, f), trace.clone())) {
        Err(e) => {
            err = Some(e.to_string());
            sink.line(&json!({"offset": 0, "error_stage": "preamble", "error": e.to_string()}));
        }
        Ok(mut r) => {
            loop {
                let got = r.next_frame();
                let heads = std::mem::take(&mut trace.borrow_mut().heads);
                let n = heads.len();
                let skip_to = match &got {
                    Ok(Some(_)) => n - 1,
                    Ok(None) => n,
                    Err(_) => n.saturating_sub(1),
                };
                for h in &heads[..skip_to] {
                    *counts.entry(format!("unknown_{}", h.kind.unwrap_or(0))).or_default() += 1;
                    sink.line(&json!({"offset": h.offset, "length": h.len, "kind": h.kind, "name": "unknown", "skipped": true}));
                }
                match got {
                    Ok(Some(frame)) => {
                        let h = &heads[n - 1];
                        let (name, v) = fields(&frame);
                        *counts.entry(name.to_string()).or_default() += 1;
                        match &frame {
                            Frame::Rows { rows: r, .. } => {
                                rows += r.len() as u64;
                                empty += u64::from(r.is_empty());
                            }
                            Frame::Segment { bytes, .. } => seg_bytes += bytes.len() as u64,
                            _ => {}
                        }
                        let mut line = json!({"offset": h.offset, "length": h.len, "kind": h.kind, "name": name});
                        line.as_object_mut().unwrap().extend(v.as_object().unwrap().clone());
                        sink.line(&line);
                    }
                    Ok(None) => {
                        let t = trace.borrow();
                        let stray = t.state.len();
                        sink.line(&json!({"offset": t.at - stray as u64, "end": true, "bytes_read": t.at, "stray_length_bytes": stray, "skipped": r.skipped()}));
                        break;
                    }
                    Err(e) => {
                        let t = trace.borrow();
                        let (off, len, kind) = match heads.last() {
                            Some(h) => (h.offset, Some(h.len), h.kind),
                            None => (t.at, None, None),
                        };
                        sink.line(&json!({"offset": off, "length": len, "kind": kind, "error_stage": "frame", "error": e.to_string(), "bytes_read": t.at}));
                        err = Some(e.to_string());
                        break;
                    }
                }
            }
        }
    }
    sink.out.flush().unwrap();
    if counts_only {
        let h: String = sink.hash.finalize().iter().map(|x| format!("{x:02x}")).collect();
        println!(
            "{}",
            json!({"frames": counts, "rows": rows, "empty_rows_frames": empty, "segment_bytes": seg_bytes,
                   "bytes": trace.borrow().at, "error": err, "jsonl_sha256": h})
        );
    }
    i32::from(err.is_some())
}
