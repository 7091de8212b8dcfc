//! The rig's encoder: a row is u16 nu | u16 nf | nu*u64 LE | nf*f64 LE.
//! A segment is parquet with `timestamp` i64, `wall_offset` i64, c{i} u64, g{j} f64.
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use dendro::archive::WalRow;
use dendro::segment::{encode_batch, EncodeContext, EncodeResult, Segment, SegmentEncoder};

pub struct Rng(pub u64);
impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    pub fn uuid(&mut self) -> String {
        let mut b = [0u8; 16];
        b[..8].copy_from_slice(&self.next().to_le_bytes());
        b[8..].copy_from_slice(&self.next().to_le_bytes());
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        let h: String = b.iter().map(|x| format!("{x:02x}")).collect();
        format!(
            "{}-{}-{}-{}-{}",
            &h[0..8],
            &h[8..12],
            &h[12..16],
            &h[16..20],
            &h[20..32]
        )
    }
}

pub fn pack(cs: &[u64], gs: &[f64]) -> Vec<u8> {
    let mut v = Vec::with_capacity(4 + 8 * (cs.len() + gs.len()));
    v.extend_from_slice(&(cs.len() as u16).to_le_bytes());
    v.extend_from_slice(&(gs.len() as u16).to_le_bytes());
    for c in cs {
        v.extend_from_slice(&c.to_le_bytes());
    }
    for g in gs {
        v.extend_from_slice(&g.to_le_bytes());
    }
    v
}

pub struct RigEncoder {
    pub version: Option<String>,
    pub caller_index: bool,
}

impl SegmentEncoder for RigEncoder {
    fn encode(&self, _ctx: &EncodeContext<'_>, rows: &[WalRow]) -> EncodeResult {
        if rows.is_empty() {
            return Ok(None);
        }
        let shape = |r: &WalRow| -> Result<(usize, usize), String> {
            if r.row.len() < 4 {
                return Err(format!("row of {} bytes at {}", r.row.len(), r.ts));
            }
            let nu = u16::from_le_bytes([r.row[0], r.row[1]]) as usize;
            let nf = u16::from_le_bytes([r.row[2], r.row[3]]) as usize;
            if r.row.len() != 4 + 8 * (nu + nf) {
                return Err(format!(
                    "row at {} is {} bytes, header says {}+{}",
                    r.ts,
                    r.row.len(),
                    nu,
                    nf
                ));
            }
            Ok((nu, nf))
        };
        let (nu, nf) = shape(&rows[0])?;
        for r in rows {
            if shape(r)? != (nu, nf) {
                return Err(format!("row at {} changes shape", r.ts).into());
            }
        }
        let mut fields = vec![
            Field::new("timestamp", DataType::Int64, false),
            Field::new("wall_offset", DataType::Int64, false),
        ];
        let mut cols: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.ts))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.wall_offset))),
        ];
        let word = |r: &WalRow, i: usize| -> [u8; 8] { r.row[4 + 8 * i..12 + 8 * i].try_into().unwrap() };
        for i in 0..nu {
            fields.push(Field::new(format!("c{i}"), DataType::UInt64, false));
            cols.push(Arc::new(UInt64Array::from_iter_values(
                rows.iter().map(|r| u64::from_le_bytes(word(r, i))),
            )));
        }
        for j in 0..nf {
            fields.push(Field::new(format!("g{j}"), DataType::Float64, false));
            cols.push(Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|r| f64::from_le_bytes(word(r, nu + j))),
            )));
        }
        let names: Vec<String> = fields.iter().map(|f| f.name().clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), cols)?;
        let bytes = encode_batch(schema, &batch)?;
        let (first, last) = (rows[0].ts, rows[rows.len() - 1].ts);
        Ok(Some(Segment {
            bytes,
            rows: rows.len() as u64,
            first_ts: first,
            last_ts: last,
            index: self.caller_index.then(|| {
                serde_json::json!({"v":1,"columns":names,"rows":rows.len(),"first_ts":first,"last_ts":last})
                    .to_string()
                    .into_bytes()
            }),
        }))
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}
