//! The crate's subscriber and its verify, with their counters and warnings as JSON.
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dendro::archive::{Archive, Depth};
use dendro::replicate::{wire::FrameReader, Subscriber};
use dendro::writer::Writer;
use serde_json::json;

use crate::enc::RigEncoder;
use crate::net;
use crate::publish::rm_archive;

pub static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub struct Capture;
impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Capture {
    fn on_event(&self, ev: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if *ev.metadata().level() > tracing::Level::WARN {
            return;
        }
        struct V(String);
        impl tracing::field::Visit for V {
            fn record_debug(&mut self, f: &tracing::field::Field, v: &dyn std::fmt::Debug) {
                if f.name() == "message" {
                    self.0 = format!("{v:?}");
                }
            }
        }
        let mut v = V(String::new());
        ev.record(&mut v);
        let mut w = WARNINGS.lock().unwrap();
        if w.len() < 200 {
            w.push(v.0);
        }
    }
}

/// Counts the bytes that were read.
struct Counted(Box<dyn Read + Send>, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, b: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(b)?;
        self.1.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Applies a stream with the crate's subscriber and prints its counters and warnings. Returns the process's exit code.
pub fn subscribe(stream: &str, archive: &Path, encoder: Option<String>, finish_on_error: bool) -> i32 {
    rm_archive(archive);
    let started = Instant::now();
    let mut a = dendro::replicate::Applied::default();
    let (mut frames, mut gaps, mut skipped) = (0u64, 0u64, 0u64);
    let mut error: Option<(&str, String)> = None;
    let mut created = false;

    let taken = Arc::new(AtomicU64::new(0));
    let run = || -> Result<FrameReader<BufReader<Counted>>, (&'static str, String)> {
        let f = net::open(stream).map_err(|e| ("open", e.to_string()))?;
        let f = Counted(f, taken.clone());
        FrameReader::new(BufReader::with_capacity(1 << 20, f)).map_err(|e| ("preamble", e.to_string()))
    };
    match run() {
        Err(e) => error = Some(e),
        Ok(mut reader) => {
            let enc = Box::new(RigEncoder {
                version: encoder,
                caller_index: false,
            });
            match Writer::create(archive, enc) {
                Err(e) => error = Some(("create", e.to_string())),
                Ok(writer) => {
                    created = true;
                    let mut sub = Subscriber::new(writer);
                    loop {
                        match reader.next_frame() {
                            Ok(None) => break,
                            Err(e) => {
                                error = Some(("read", e.to_string()));
                                break;
                            }
                            Ok(Some(f)) => match sub.apply(f) {
                                Err(e) => {
                                    error = Some(("apply", e.to_string()));
                                    break;
                                }
                                Ok(one) => {
                                    frames += 1;
                                    a.rows += one.rows;
                                    a.rows_skipped += one.rows_skipped;
                                    a.segments += one.segments;
                                    a.segments_held += one.segments_held;
                                    a.index_entries += one.index_entries;
                                    a.clock_offsets += one.clock_offsets;
                                    a.sources += one.sources;
                                    a.source_updates += one.source_updates;
                                    a.gap |= one.gap;
                                    gaps += u64::from(one.gap);
                                }
                            },
                        }
                    }
                    skipped = reader.skipped();
                    if error.is_none() || finish_on_error {
                        if let Err(e) = sub.finish() {
                            error.get_or_insert(("finish", e.to_string()));
                        }
                    } else {
                        drop(sub); // Writer::drop joins; nothing is finalized
                    }
                }
            }
        }
    }
    let wall = started.elapsed().as_secs_f64();
    let len = taken.load(Ordering::Relaxed);
    eprintln!("wall_s={wall:.3} bytes={len} MB/s={:.2}", len as f64 / 1e6 / wall);
    if let Some((stage, e)) = &error {
        eprintln!("error[{stage}]: {e}");
    }
    let code = i32::from(error.is_some());
    println!(
        "{}",
        json!({
            "exit": code, "frames_applied": frames, "kinds_skipped": skipped, "archive_created": created,
            "rows": a.rows, "rows_skipped": a.rows_skipped, "segments": a.segments,
            "segments_held": a.segments_held, "index_entries": a.index_entries,
            "clock_offsets": a.clock_offsets, "sources": a.sources, "source_updates": a.source_updates,
            "gap": a.gap, "gap_frames": gaps,
            "error_stage": error.as_ref().map(|e| e.0), "error": error.as_ref().map(|e| e.1.clone()),
            "warnings": *WARNINGS.lock().unwrap(),
        })
    );
    code
}

pub fn verify(archive: &Path) -> i32 {
    let r = Archive::open(archive).and_then(|db| db.verify(Depth::Full));
    match r {
        Ok(r) => {
            println!(
                "{}",
                json!({"sound": r.is_sound(), "sources": r.sources, "streams": r.streams, "segments": r.segments,
                       "wal_rows": r.wal_rows, "problems": r.problems.iter().map(|p| p.to_string()).collect::<Vec<_>>()})
            );
            i32::from(!r.is_sound())
        }
        Err(e) => {
            println!("{}", json!({"sound": false, "error": e.to_string()}));
            eprintln!("{e}");
            2
        }
    }
}
