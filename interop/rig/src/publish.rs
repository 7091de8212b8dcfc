//! Streams that the crate's own publisher writes from a real archive, deterministic by `--seed`, and the row-heavy
//! stream of a producer that has no archive behind it (`--direct`).
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dendro::archive::{Archive, CallerRow, SourceMeta, WalRow};
use dendro::replicate::{wire, ArchivePublisher, Frame, IndexKind};
use dendro::writer::{SourceWriter, Writer};
use serde_json::{json, Value};

use crate::args::Args;
use crate::enc::{pack, RigEncoder, Rng};

const SEC: i64 = 1_000_000_000;
/// A batch of this many bytes is handed to the writer at once while history is made.
const CHUNK: usize = 4 << 20;

pub const FLAGS: &str =
    "[--archive PATH] [--seed N] [--sources N] [--streams N] [--segments N] [--rows-per-segment N] \
[--live-intervals N] [--row-bytes N] [--seal-every N] [--index-every N] [--empty-every N] [--interval-ms N] \
[--mixed-sizes] [--caller-index] [--negative-ts] [--no-uuid] [--unicode-labels] [--complete] [--late-stream] \
[--late-source] [--source-update] [--reconnects N [--outage N] [--overlap N] [--final-connect]] [--direct]";

struct Src {
    w: Option<SourceWriter>,
    id: i64,
    streams: Vec<String>,
    rng: Rng,
    counters: Vec<Vec<u64>>,
    gauges: Vec<Vec<f64>>,
    idx_n: u64,
}

pub struct Opt {
    pub out: PathBuf,
    archive: Option<PathBuf>,
    seed: u64,
    sources: usize,
    streams: usize,
    segments: usize,
    rps: usize,
    live: usize,
    row_bytes: usize,
    caller_index: bool,
    negative_ts: bool,
    no_uuid: bool,
    unicode: bool,
    complete: bool,
    mixed: bool,
    seal_every: usize,
    index_every: usize,
    empty_every: usize,
    late_stream: bool,
    late_source: bool,
    source_update: bool,
    reconnects: usize,
    outage: usize,
    overlap: usize,
    final_connect: bool,
    direct: bool,
    interval: Duration,
}

const BASE: [&str; 12] = [
    "cpu_usage",
    "memory",
    "blockio_latency",
    "network_traffic",
    "scheduler",
    "syscall_counts",
    "tcp_traffic",
    "filesystem",
    "gpu_nvidia",
    "softirq",
    "cgroup_cpu",
    "page_cache",
];

fn stream_name(i: usize, unicode: bool) -> String {
    let base = if i < BASE.len() {
        BASE[i].to_string()
    } else {
        format!("{}_{}", BASE[i % BASE.len()], i / BASE.len())
    };
    if unicode && i % 2 == 0 {
        format!("{base}/使用率-é\u{301}-🦀")
    } else {
        base
    }
}

fn factor(i: usize, mixed: bool) -> f64 {
    if mixed {
        [1.0, 0.5, 2.0, 3.0][i % 4]
    } else {
        1.0
    }
}

impl Opt {
    pub fn from(a: &mut Args) -> Result<Self, String> {
        let o = Opt {
            out: a.req("--out")?.into(),
            archive: a.opt("--archive").map(Into::into),
            seed: a.num("--seed", 1)?,
            sources: a.num("--sources", 1)? as usize,
            streams: a.num("--streams", 2)? as usize,
            segments: a.num("--segments", 2)? as usize,
            rps: a.num("--rows-per-segment", 100)? as usize,
            live: a.num("--live-intervals", 20)? as usize,
            row_bytes: a.num("--row-bytes", 64)? as usize,
            caller_index: a.flag("--caller-index"),
            negative_ts: a.flag("--negative-ts"),
            no_uuid: a.flag("--no-uuid"),
            unicode: a.flag("--unicode-labels"),
            complete: a.flag("--complete"),
            mixed: a.flag("--mixed-sizes"),
            seal_every: a.num("--seal-every", 25)? as usize,
            index_every: a.num("--index-every", 10)? as usize,
            empty_every: a.num("--empty-every", 7)? as usize,
            late_stream: a.flag("--late-stream"),
            late_source: a.flag("--late-source"),
            source_update: a.flag("--source-update"),
            reconnects: a.num("--reconnects", 0)? as usize,
            outage: a.num("--outage", 0)? as usize,
            overlap: a.num("--overlap", 0)? as usize,
            final_connect: a.flag("--final-connect"),
            direct: a.flag("--direct"),
            interval: Duration::from_millis(a.num("--interval-ms", 0)?),
        };
        if o.complete && (o.reconnects > 0 || o.final_connect) {
            return Err("--complete publishes after the end: it has one connection".into());
        }
        if o.direct
            && (o.complete
                || o.reconnects > 0
                || o.late_stream
                || o.late_source
                || o.source_update
                || o.archive.is_some())
        {
            return Err("--direct has live rows and index entries of its sources only".into());
        }
        Ok(o)
    }

    fn anchor(&self) -> i64 {
        if self.negative_ts {
            -(((self.segments * self.rps + self.live) as i64 / 2) * SEC) - 1
        } else {
            1_700_000_000 * SEC
        }
    }

    fn names(&self) -> Vec<String> {
        (0..self.streams).map(|i| stream_name(i, self.unicode)).collect()
    }

    fn shape(&self, s: usize) -> (usize, usize) {
        let want = (self.row_bytes as f64 * factor(s, self.mixed)) as usize;
        let words = (want.saturating_sub(4) / 8).max(1);
        let nf = words / 3;
        (words - nf, nf)
    }

    fn meta(&self, n: usize, anchor: i64, late: bool) -> SourceMeta {
        let mut labels = BTreeMap::from([
            ("host".to_string(), format!("web-{n:02}")),
            ("source".to_string(), if late { "late".into() } else { "rig".into() }),
        ]);
        let mut metadata = BTreeMap::from([
            ("producer_version".to_string(), "dendro-rig 0.1.0".to_string()),
            ("sampling_interval_ms".to_string(), "1000".to_string()),
        ]);
        if self.unicode {
            labels.insert("名前".into(), "ホスト-é-🦀".into());
            labels.insert("rtl".into(), "\u{5e9}\u{5dc}\u{5d5}\u{5dd}\u{200f}".into());
            labels.insert(
                "esc\"\\\n\t\u{7}".into(),
                "quote\" back\\ nl\n nul\u{0} del\u{7f} ls\u{2028} end".into(),
            );
            labels.insert("".into(), "".into());
            metadata.insert("emoji👩‍👩‍👧".into(), "{\"nested\":\"\u{e9}\\u00e9\"}".into());
        }
        SourceMeta {
            labels,
            metadata,
            clock_anchor_wall_ns: anchor,
        }
    }
}

impl Src {
    fn new(w: Option<SourceWriter>, o: &Opt, n: usize, streams: Vec<String>) -> Self {
        let mut rng = Rng(o.seed.wrapping_mul(1_000_003).wrapping_add(n as u64 + 17));
        let counters = (0..streams.len())
            .map(|s| (0..o.shape(s).0).map(|_| rng.below(1 << 40)).collect())
            .collect();
        let gauges = (0..streams.len())
            .map(|s| (0..o.shape(s).1).map(|_| rng.unit() * 100.0).collect())
            .collect();
        let id = w.as_ref().map_or(n as i64, |w| w.source_id());
        Src {
            id,
            w,
            streams,
            rng,
            counters,
            gauges,
            idx_n: 0,
        }
    }
    fn writer(&mut self) -> &mut SourceWriter {
        self.w
            .as_mut()
            .expect("a source of an archive has a writer until it is finalized")
    }
    fn row(&mut self, s: usize, ts: i64) -> WalRow {
        for (i, c) in self.counters[s].iter_mut().enumerate() {
            // a third of the counters are idle in a given tick, as on a real host
            if (i + ts as usize / SEC as usize) % 3 != 0 {
                *c += self.rng.below(1 << (8 + (i % 5) * 4));
            }
        }
        for g in self.gauges[s].iter_mut() {
            *g += self.rng.unit() - 0.5;
        }
        WalRow {
            stream: self.streams[s].clone(),
            ts,
            wall_offset: self.rng.below(20_000) as i64 - 10_000,
            row: pack(&self.counters[s], &self.gauges[s]),
        }
    }
    fn index(&mut self, stream: &str, ts: i64) -> (String, CallerRow) {
        self.idx_n += 1;
        let n = self.idx_n;
        let body = if n == 1 {
            json!({"full": (0..16).map(|i| format!("/sys/fs/cgroup/unit-{i}.slice")).collect::<Vec<_>>()})
        } else {
            json!({"set": {format!("{}", self.rng.below(64)): format!("/sys/fs/cgroup/unit-{n}.scope")}, "clear": [self.rng.below(64)]})
        };
        (
            stream.to_string(),
            CallerRow {
                ts,
                blob: body.to_string().into_bytes(),
            },
        )
    }
}

#[derive(Default)]
struct Counts {
    frames: BTreeMap<&'static str, u64>,
    rows: u64,
    empty_rows: u64,
    bytes: u64,
    seg_bytes: Vec<usize>,
}

/// The crate mints each writer session's uuid at random; the ones that a stream shows come from the seed instead, so
/// that the same seed gives the same bytes.
struct Sessions {
    rng: Rng,
    seen: BTreeMap<String, String>,
}

impl Sessions {
    fn settle(&mut self, metadata: &mut BTreeMap<String, String>) {
        let Some(text) = metadata.get_mut("writer_sessions") else {
            return;
        };
        let Ok(mut list) = serde_json::from_str::<Value>(text) else {
            return;
        };
        for s in list.as_array_mut().into_iter().flatten() {
            if let Some(Value::String(id)) = s.get_mut("session") {
                let rng = &mut self.rng;
                *id = self.seen.entry(id.clone()).or_insert_with(|| rng.uuid()).clone();
            }
        }
        *text = list.to_string();
    }
}

/// One connection's bytes on their way to a file.
struct Wire {
    path: PathBuf,
    out: BufWriter<File>,
    counts: Counts,
    buf: Vec<u8>,
}

impl Wire {
    fn create(path: PathBuf) -> Result<Self, Box<dyn std::error::Error>> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        wire::write_preamble(&mut out)?;
        out.flush()?;
        Ok(Wire {
            path,
            out,
            counts: Counts {
                bytes: 14,
                ..Counts::default()
            },
            buf: Vec::new(),
        })
    }

    fn put(&mut self, o: &Opt, sessions: &mut Sessions, at: i64, frames: Vec<Frame>) -> dendro::Result<()> {
        for mut f in frames {
            let k = match &mut f {
                Frame::Handshake { uuid, metadata, .. } => {
                    sessions.settle(metadata);
                    if o.no_uuid {
                        *uuid = None;
                    }
                    "handshake"
                }
                Frame::Index {
                    kind: IndexKind::Full, ..
                } => "index_full",
                Frame::Index {
                    kind: IndexKind::Delta, ..
                } => "index_delta",
                Frame::Rows { rows, .. } => {
                    self.counts.rows += rows.len() as u64;
                    self.counts.empty_rows += u64::from(rows.is_empty());
                    "rows"
                }
                Frame::Segment { bytes, .. } => {
                    self.counts.seg_bytes.push(bytes.len());
                    "segment"
                }
                Frame::ClockOffset { .. } => "clock_offset",
                Frame::SourceUpdate { ts, metadata, .. } => {
                    // The publisher stamps the wall time of its poll.
                    *ts = at;
                    sessions.settle(metadata);
                    "source_update"
                }
                _ => "other",
            };
            *self.counts.frames.entry(k).or_default() += 1;
            self.buf.clear();
            wire::encode_frame(&f, &mut self.buf)?;
            self.out
                .write_all(&self.buf)
                .map_err(|e| dendro::Error::Message(e.to_string()))?;
            self.counts.bytes += self.buf.len() as u64;
        }
        Ok(())
    }

    fn finish(mut self) -> std::io::Result<Value> {
        self.out.flush()?;
        let c = &mut self.counts;
        c.seg_bytes.sort_unstable();
        let n = c.seg_bytes.len();
        Ok(json!({
            "out": self.path.display().to_string(), "bytes": c.bytes, "frames": c.frames,
            "rows": c.rows, "empty_rows_frames": c.empty_rows,
            "segment_bytes": {"n": n, "min": c.seg_bytes.first(), "median": c.seg_bytes.get(n / 2),
                              "max": c.seg_bytes.last(), "sum": c.seg_bytes.iter().sum::<usize>()},
        }))
    }
}

/// Sleeps until interval `i` of a paced stream is due.
fn pace(o: &Opt, started: Instant, i: usize) {
    let due = o.interval * i as u32;
    if let Some(left) = due.checked_sub(started.elapsed()) {
        std::thread::sleep(left);
    }
}

/// Publishes and gives one summary for each connection.
pub fn run(o: &Opt) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let sessions = Sessions {
        rng: Rng(o.seed ^ 0x5e55_1035),
        seen: BTreeMap::new(),
    };
    if o.direct {
        return direct(o, sessions);
    }
    from_archive(o, sessions)
}

/// A producer-side publisher: every interval is one Rows frame per source, made and sent, with no archive behind it.
/// Far quicker to make than by polling an archive, and what the field's telemetry producers do.
fn direct(o: &Opt, mut sessions: Sessions) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let anchor = o.anchor();
    let mut idrng = Rng(o.seed ^ 0xabcdef);
    let names = o.names();
    let mut w = Wire::create(o.out.clone())?;
    let mut srcs = Vec::new();
    for n in 0..o.sources {
        let mut meta = o.meta(n, anchor, false);
        meta.metadata.insert("encoder".into(), "rig-1".into());
        let hello = Frame::Handshake {
            source: n as u32,
            uuid: Some(idrng.uuid()),
            labels: meta.labels,
            metadata: meta.metadata,
            clock_anchor_wall_ns: anchor,
            complete: false,
        };
        w.put(o, &mut sessions, anchor, vec![hello])?;
        srcs.push((Src::new(None, o, n, names.clone()), (0u64, 0u64)));
    }
    let started = Instant::now();
    for i in 0..o.live {
        for (n, (src, state)) in srcs.iter_mut().enumerate() {
            let ts = |s: usize| anchor + i as i64 * SEC + s as i64 * 1_000;
            let mut frames = Vec::new();
            if o.index_every > 0 && i % o.index_every == 0 {
                let (stream, row) = src.index("slots", ts(0));
                *state = (src.rng.next() | 1, src.rng.next());
                let kind = if i == 0 { IndexKind::Full } else { IndexKind::Delta };
                frames.push(Frame::Index {
                    source: n as u32,
                    stream,
                    ts: row.ts,
                    kind,
                    state: *state,
                    blob: row.blob,
                });
            }
            let quiet = o.empty_every > 0 && i % o.empty_every == o.empty_every - 1;
            let rows = if quiet {
                Vec::new()
            } else {
                (0..o.streams).map(|s| src.row(s, ts(s))).collect()
            };
            frames.push(Frame::Rows {
                source: n as u32,
                seq: i as u64,
                index_state: *state,
                rows,
            });
            w.put(o, &mut sessions, ts(0), frames)?;
        }
        if !o.interval.is_zero() {
            w.out.flush()?;
            pace(o, started, i + 1);
        }
    }
    Ok(vec![w.finish()?])
}

/// A connection in progress: it is closed before interval `until`.
struct Connection {
    publisher: ArchivePublisher,
    wire: Wire,
    until: usize,
}

fn from_archive(o: &Opt, mut sessions: Sessions) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let (path, temp) = match &o.archive {
        Some(p) => (p.clone(), false),
        None => (PathBuf::from(format!("{}.publisher.dendro", o.out.display())), true),
    };
    rm_archive(&path);
    let hist = o.segments * o.rps;
    let anchor = o.anchor();
    let encoder = || {
        Box::new(RigEncoder {
            version: Some("rig-1".into()),
            caller_index: o.caller_index,
        })
    };
    let mut writer = Writer::create(&path, encoder())?;
    let mut idrng = Rng(o.seed ^ 0xabcdef);
    let names = o.names();
    let mut srcs: Vec<Src> = Vec::new();
    for n in 0..o.sources {
        let uuid = idrng.uuid();
        let w = writer.add_source_with_uuid(o.meta(n, anchor, false), Some(&uuid))?;
        srcs.push(Src::new(Some(w), o, n, names.clone()));
    }
    let tick_ts = |t: usize, s: usize| anchor + (t as i64) * SEC + (s as i64) * 1_000;

    // History, sealed.
    for k in 0..o.segments {
        for src in srcs.iter_mut() {
            let at = tick_ts(k * o.rps, 0);
            // one series under a real stream's name, one under a store-only name
            for name in [names[0].clone(), "slots".to_string()] {
                let (st, row) = src.index(&name, at);
                src.writer().caller_rows(st, vec![row])?;
            }
            for s in 0..o.streams {
                let mut chunk = Vec::new();
                let mut bytes = 0usize;
                for r in 0..o.rps {
                    let row = src.row(s, tick_ts(k * o.rps + r, s));
                    bytes += row.row.len();
                    chunk.push(row);
                    if bytes > CHUNK {
                        src.writer().wal(std::mem::take(&mut chunk))?;
                        bytes = 0;
                    }
                }
                if !chunk.is_empty() {
                    src.writer().wal(chunk)?;
                }
            }
            src.writer().seal(names.clone())?;
        }
    }
    for src in srcs.iter_mut() {
        src.writer().sync()?;
    }

    let mut db = None;
    let mut open: Vec<Connection> = Vec::new();
    let mut done: Vec<Value> = Vec::new();
    let mut made = 0usize;
    let mut next_path = || {
        made += 1;
        if made == 1 {
            o.out.clone()
        } else {
            PathBuf::from(format!("{}.{made}", o.out.display()))
        }
    };
    // Connection c of the live part runs from starts[c] to the next one's start less the outage or plus the overlap.
    let span = o.live / (o.reconnects + 1);
    let until = |c: usize| {
        if c == o.reconnects {
            usize::MAX
        } else {
            ((c + 1) * span + o.overlap).saturating_sub(o.outage)
        }
    };

    let started = Instant::now();
    let mut last = (anchor, 0i64);
    let (at_update, at_stream, at_source) = (o.live / 3, o.live / 2, 2 * o.live / 3);
    let mut connected = 0usize;
    for i in 0..o.live.max(1) {
        if !o.complete && connected <= o.reconnects && i == connected * span {
            let d = match db.as_ref() {
                Some(d) => d,
                None => db.insert(Archive::open(&path)?),
            };
            let (publisher, frames) = ArchivePublisher::catching_up(d, i64::MIN)?;
            let mut wire = Wire::create(next_path())?;
            wire.put(o, &mut sessions, tick_ts(hist + i, 0), frames)?;
            wire.out.flush()?;
            open.push(Connection {
                publisher,
                wire,
                until: until(connected),
            });
            connected += 1;
        }
        let (ended, going): (Vec<_>, Vec<_>) = open.into_iter().partition(|c| c.until <= i);
        open = going;
        for c in ended {
            done.push(c.wire.finish()?);
        }
        if i >= o.live {
            break;
        }
        let t = hist + i;
        let quiet = o.empty_every > 0 && i % o.empty_every == o.empty_every - 1;
        if o.source_update && i == at_update {
            let mut p = BTreeMap::from([("note".to_string(), "changed while recording".to_string())]);
            if o.unicode {
                p.insert("メモ".into(), "更新🦀".into());
            }
            srcs[0].writer().update_metadata(p)?;
        }
        if o.late_stream && i == at_stream {
            let st = if o.unicode {
                "late_stream-ü".to_string()
            } else {
                "late_stream".to_string()
            };
            let src = &mut srcs[0];
            src.streams.push(st.clone());
            let s = src.streams.len() - 1;
            let (nu, nf) = o.shape(s);
            src.counters.push(vec![7; nu]);
            src.gauges.push(vec![0.5; nf]);
            let rows: Vec<WalRow> = (0..5).map(|j| src.row(s, tick_ts(t, s) - SEC + j * 1000)).collect();
            src.writer().wal(rows)?;
            src.writer().seal(vec![st])?;
        }
        if o.late_source && i == at_source {
            let uuid = idrng.uuid();
            let n = srcs.len();
            let w = writer.add_source_with_uuid(o.meta(n, tick_ts(t, 0), true), Some(&uuid))?;
            let mut src = Src::new(Some(w), o, n, names.clone());
            let (st, row) = src.index("slots", tick_ts(t, 0));
            src.writer().caller_rows(st, vec![row])?;
            let rows: Vec<WalRow> = (0..4).map(|j| src.row(0, tick_ts(t, 0) - SEC + j * 1000)).collect();
            src.writer().wal(rows)?;
            src.writer().seal(vec![names[0].clone()])?;
            srcs.push(src);
        }
        if !quiet {
            let mut ticks = Vec::new();
            for src in srcs.iter_mut() {
                if o.index_every > 0 && i % o.index_every == 0 {
                    let name = if (i / o.index_every) % 2 == 0 {
                        "slots".to_string()
                    } else {
                        names[0].clone()
                    };
                    let (st, row) = src.index(&name, tick_ts(t, 0));
                    src.writer().caller_rows(st, vec![row])?;
                }
                let mut rows = Vec::new();
                for s in 0..src.streams.len() {
                    if src.rng.below(12) == 0 {
                        continue; // nothing observed on this stream this tick
                    }
                    let r = src.row(s, tick_ts(t, s));
                    last = (r.ts, r.wall_offset);
                    rows.push(r);
                }
                ticks.push((src.id, rows));
            }
            writer.wal_tick(ticks)?;
        }
        if let Some(d) = db.as_ref() {
            // A sealed row is out of a poll's view: rows are published before they are sealed.
            srcs[0].writer().sync()?;
            for c in &mut open {
                let frames = c.publisher.next(d)?;
                c.wire.put(o, &mut sessions, tick_ts(t, 0), frames)?;
                if !o.interval.is_zero() {
                    c.wire.out.flush()?;
                }
            }
        }
        if o.seal_every > 0 && (i + 1) % o.seal_every == 0 && i + 1 < o.live {
            for src in srcs.iter_mut() {
                let all = src.streams.clone();
                src.writer().seal(all)?;
            }
            srcs[0].writer().sync()?;
        }
        pace(o, started, i + 1);
    }
    if o.final_connect {
        for src in srcs.iter_mut() {
            src.writer().sync()?;
        }
        if let Some(d) = db.as_ref() {
            let at = tick_ts(hist + o.live, 0);
            let (mut p, frames) = ArchivePublisher::catching_up(d, i64::MIN)?;
            let mut w = Wire::create(next_path())?;
            w.put(o, &mut sessions, at, frames)?;
            w.put(o, &mut sessions, at, p.next(d)?)?;
            done.extend(open.drain(..).map(|c| c.wire.finish()).collect::<Result<Vec<_>, _>>()?);
            done.push(w.finish()?);
        }
    }
    if o.complete {
        for src in srcs.iter_mut() {
            src.w.take().expect("not finalized yet").finalize(last)?;
        }
        writer.join()?;
        let d = Archive::open(&path)?;
        let mut w = Wire::create(next_path())?;
        let (mut p, frames) = ArchivePublisher::catching_up(&d, i64::MIN)?;
        w.put(o, &mut sessions, last.0, frames)?;
        for _ in 0..3 {
            w.put(o, &mut sessions, last.0, p.next(&d)?)?;
        }
        done.push(w.finish()?);
    }
    for c in open {
        done.push(c.wire.finish()?);
    }
    drop(db);
    for src in srcs.iter_mut() {
        src.w.take();
    }
    writer.join()?;
    drop(writer);
    if temp {
        rm_archive(&path);
    }
    Ok(done)
}

pub fn rm_archive(path: &Path) {
    for s in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{s}", path.display()));
    }
}
