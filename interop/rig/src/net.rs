//! Endpoints: a stream from a file or a socket, and a server that sends one to each client.
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::args::Args;
use crate::enc::Rng;
use crate::publish;

const POLL: Duration = Duration::from_millis(2);
/// An HTTP head larger than this is refused.
const MAX_HEAD: u64 = 64 << 10;

pub const SERVE_FLAGS: &str =
    "--listen tcp://HOST:PORT|http://HOST:PORT|unix://PATH (--stream FILE | --out FILE and publish's flags) \
[--rate BYTES_PER_S] [--write-bytes N] [--write-seed N] [--cut N] [--hold] [--clients N (default 1, 0: for ever)]";

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Socket {
    fn read(&mut self, b: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => s.read(b),
            Socket::Unix(s) => s.read(b),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => s.write(b),
            Socket::Unix(s) => s.write(b),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    fn end_writes(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(s) => s.shutdown(std::net::Shutdown::Write),
            Socket::Unix(s) => s.shutdown(std::net::Shutdown::Write),
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds and gives the endpoint under which it is reached.
    fn bind(endpoint: &str) -> Result<(Self, String), Box<dyn std::error::Error>> {
        if let Some(path) = endpoint.strip_prefix("unix://") {
            return Ok((Listener::Unix(UnixListener::bind(path)?), endpoint.into()));
        }
        for scheme in ["tcp://", "http://"] {
            if let Some(addr) = endpoint.strip_prefix(scheme) {
                let l = TcpListener::bind(addr.trim_end_matches('/'))?;
                let at = format!("{scheme}{}", l.local_addr()?);
                return Ok((Listener::Tcp(l), at));
            }
        }
        Err(format!("{endpoint}: not tcp://, http:// or unix://").into())
    }

    fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Listener::Tcp(l) => {
                let s = l.accept()?.0;
                s.set_nodelay(true)?;
                Socket::Tcp(s)
            }
            Listener::Unix(l) => Socket::Unix(l.accept()?.0),
        })
    }
}

/// Opens the stream that a subscriber reads: a file's path, `tcp://`, `unix://` or `http://` to connect to, or
/// `listen+tcp://`, `listen+unix://` to wait for one connection. Where it listens it prints `listening on ENDPOINT` to
/// standard error.
pub fn open(from: &str) -> Result<Box<dyn Read + Send>, Box<dyn std::error::Error>> {
    if let Some(rest) = from.strip_prefix("listen+") {
        let (l, at) = Listener::bind(rest)?;
        eprintln!("listening on {at}");
        return Ok(Box::new(l.accept()?));
    }
    if let Some(addr) = from.strip_prefix("tcp://") {
        return Ok(Box::new(TcpStream::connect(addr)?));
    }
    if let Some(path) = from.strip_prefix("unix://") {
        return Ok(Box::new(UnixStream::connect(path)?));
    }
    if let Some(rest) = from.strip_prefix("http://") {
        let (addr, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut s = TcpStream::connect(addr)?;
        // HTTP/1.0, so that the body is not chunked and ends with the connection.
        write!(s, "GET /{path} HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
        let mut r = BufReader::new(s);
        let status = head(&mut r)?;
        if status.split(' ').nth(1) != Some("200") {
            return Err(format!("{from}: {status}").into());
        }
        return Ok(Box::new(r));
    }
    Ok(Box::new(File::open(from)?))
}

/// Reads an HTTP head and gives its first line.
fn head(r: &mut impl BufRead) -> io::Result<String> {
    let mut r = r.take(MAX_HEAD);
    let mut first = String::new();
    let mut line = String::new();
    loop {
        line.clear();
        if r.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no end of the HTTP head"));
        }
        let text = line.trim_end();
        if text.is_empty() {
            return Ok(first);
        }
        if first.is_empty() {
            first = text.into();
        }
    }
}

struct Sending {
    http: bool,
    rate: u64,
    write_bytes: usize,
    write_seed: Option<u64>,
    cut: u64,
    hold: bool,
}

pub fn serve(a: &mut Args) -> Result<i32, Box<dyn std::error::Error>> {
    let listen = a.req("--listen")?;
    let stream = a.opt("--stream").map(PathBuf::from);
    let how = Sending {
        http: listen.starts_with("http://"),
        rate: a.num("--rate", 0)?,
        write_bytes: a.num("--write-bytes", 64 << 10)?.max(1) as usize,
        write_seed: a.opt("--write-seed").map(|s| s.parse()).transpose()?,
        cut: a.num("--cut", u64::MAX)?,
        hold: a.flag("--hold"),
    };
    let clients = a.num("--clients", 1)?;
    let publishing = match &stream {
        Some(_) => None,
        None => Some(publish::Opt::from(a)?),
    };
    a.done()?;
    let path = stream.unwrap_or_else(|| publishing.as_ref().expect("one of the two").out.clone());

    let (listener, at) = Listener::bind(&listen)?;
    let done = Arc::new(AtomicBool::new(publishing.is_none()));
    if publishing.is_some() {
        // Clients follow the file: it is there, and empty, before the first one comes.
        File::create(&path)?;
    }
    println!("{}", json!({"listening": at}));
    let publisher = publishing.map(|o| {
        let done = done.clone();
        std::thread::spawn(move || {
            let r = publish::run(&o).map_err(|e| e.to_string());
            done.store(true, Ordering::Release);
            r
        })
    });
    let how = Arc::new(how);
    let (tx, rx) = mpsc::channel();
    std::thread::spawn({
        let (path, done) = (path.clone(), done.clone());
        move || loop {
            let Ok(socket) = listener.accept() else { return };
            let (path, done, how, tx) = (path.clone(), done.clone(), how.clone(), tx.clone());
            std::thread::spawn(move || {
                let sent = send(socket, &path, &done, &how);
                let _ = tx.send(sent);
            });
        }
    });
    let mut code = 0;
    let mut served = 0;
    for result in rx {
        served += 1;
        match result {
            Ok(n) => println!("{}", json!({"client": served, "bytes": n})),
            Err(e) => {
                println!("{}", json!({"client": served, "error": e.to_string()}));
                code = 1;
            }
        }
        if served == clients {
            break;
        }
    }
    if let Some(p) = publisher {
        for line in p.join().expect("the publisher does not panic")? {
            println!("{line}");
        }
    }
    Ok(code)
}

/// Sends the file, as it grows until `done`, and gives how many of its bytes went out.
fn send(mut to: Socket, path: &Path, done: &AtomicBool, how: &Sending) -> io::Result<u64> {
    let mut chunked = false;
    if how.http {
        let mut r = BufReader::new(to);
        chunked = !head(&mut r)?.ends_with("HTTP/1.0");
        to = r.into_inner();
        to.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n")?;
        to.write_all(if chunked {
            b"Transfer-Encoding: chunked\r\n\r\n"
        } else {
            b"Connection: close\r\n\r\n"
        })?;
    }
    let mut f = File::open(path)?;
    let mut rng = how.write_seed.map(Rng);
    let mut buf = vec![0; how.write_bytes];
    let mut out = Vec::new();
    let mut sent = 0u64;
    let started = Instant::now();
    while sent < how.cut {
        let want = match &mut rng {
            Some(r) => 1 + r.below(how.write_bytes as u64) as usize,
            None => how.write_bytes,
        };
        let was_done = done.load(Ordering::Acquire);
        let n = f.read(&mut buf[..want.min((how.cut - sent) as usize)])?;
        if n == 0 {
            if was_done {
                break;
            }
            std::thread::sleep(POLL);
            continue;
        }
        if chunked {
            out.clear();
            write!(out, "{n:x}\r\n")?;
            out.extend_from_slice(&buf[..n]);
            out.extend_from_slice(b"\r\n");
            to.write_all(&out)?;
        } else {
            to.write_all(&buf[..n])?;
        }
        sent += n as u64;
        if how.rate > 0 {
            let due = Duration::from_secs_f64(sent as f64 / how.rate as f64);
            if let Some(left) = due.checked_sub(started.elapsed()) {
                std::thread::sleep(left);
            }
        }
    }
    if how.hold {
        // Stays until the client goes.
        let mut one = [0; 64];
        while to.read(&mut one)? > 0 {}
        return Ok(sent);
    }
    if chunked && sent < how.cut {
        to.write_all(b"0\r\n\r\n")?;
    }
    to.end_writes()?;
    // A close with unread input would reset the connection and take the last bytes with it.
    let mut one = [0; 64];
    while matches!(to.read(&mut one), Ok(n) if n > 0) {}
    Ok(sent)
}
