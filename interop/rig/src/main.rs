//! A small program on the real `dendro` crate: it publishes, serves, subscribes, verifies, dumps and reads back, so that
//! what Wiretape does can be held against what the crate does.
mod args;
mod dump;
mod enc;
mod frames;
mod net;
mod publish;
mod read;
mod sub;

use args::Args;
use tracing_subscriber::prelude::*;

fn usage() -> String {
    format!(
        "dendro-rig publish --out FILE {}
dendro-rig serve {}
dendro-rig subscribe STREAM|tcp://…|http://…|unix://…|listen+tcp://…|listen+unix://… --archive OUT [--encoder STR|none (default rig-1)] [--finish-on-error]
dendro-rig verify ARCHIVE
dendro-rig dump ARCHIVE [--counts] [--raw] [--strip-sessions]
dendro-rig read ARCHIVE [--encoder STR|none (default rig-1)]
dendro-rig frames STREAM [--counts]",
        publish::FLAGS,
        net::SERVE_FLAGS
    )
}

fn go() -> Result<i32, Box<dyn std::error::Error>> {
    let mut v: Vec<String> = std::env::args().skip(1).collect();
    if v.is_empty() {
        return Err(usage().into());
    }
    let cmd = v.remove(0);
    let mut a = Args::new(v);
    match cmd.as_str() {
        "publish" => {
            let o = publish::Opt::from(&mut a)?;
            a.done()?;
            for line in publish::run(&o)? {
                println!("{line}");
            }
            Ok(0)
        }
        "serve" => net::serve(&mut a),
        "subscribe" => {
            let arch = a.req("--archive")?;
            let enc = a.opt("--encoder").unwrap_or_else(|| "rig-1".into());
            let foe = a.flag("--finish-on-error");
            let s = a.pos("STREAM")?;
            a.done()?;
            Ok(sub::subscribe(&s, arch.as_ref(), (enc != "none").then_some(enc), foe))
        }
        "verify" => {
            let p = a.pos("ARCHIVE")?;
            a.done()?;
            Ok(sub::verify(p.as_ref()))
        }
        "dump" => {
            let (c, r, x) = (a.flag("--counts"), a.flag("--raw"), a.flag("--strip-sessions"));
            let p = a.pos("ARCHIVE")?;
            a.done()?;
            dump::run(p.as_ref(), c, r, x)?;
            Ok(0)
        }
        "read" => {
            let enc = a.opt("--encoder").unwrap_or_else(|| "rig-1".into());
            let p = a.pos("ARCHIVE")?;
            a.done()?;
            read::run(p.as_ref(), (enc != "none").then_some(enc))
        }
        "frames" => {
            let c = a.flag("--counts");
            let p = a.pos("STREAM")?;
            a.done()?;
            Ok(frames::run(p.as_ref(), c))
        }
        _ => Err(usage().into()),
    }
}

fn main() {
    tracing_subscriber::registry().with(sub::Capture).init();
    match go() {
        Ok(c) => std::process::exit(c),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(2);
        }
    }
}
