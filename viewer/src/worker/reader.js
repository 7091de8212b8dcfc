// Reading a connection's bytes: parts that lie one after the other, each a file
// on disk, a file behind a URL read by ranges, or a compressed one; and the
// window that follows a walk over them.

import { MAX_SIZE } from '../listing.js';
import { patient } from '../patience.js';

/** A source that is not what it was when it was opened. */
export class ChangedError extends Error {}

/** Nobody waits for it any more. */
export class Ended extends Error {}

/** From how many bytes on a read is given to the other worker. */
const APART = 256 << 10;

/** The other end of read-worker.js. */
class Apart {
  constructor(port) {
    this.port = port;
    this.next = 1;
    this.waiting = new Map();
    port.onmessage = ({ data: { id, bytes, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (bytes) resolve(bytes);
      else reject(Object.assign(new Error(), { name: error }));
    };
  }

  read(blob) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.port.postMessage({ id, blob });
    });
  }
}

let apart;

/** Gives large reads of files to the worker at the other end of port. */
export function readApart(port) {
  apart = new Apart(port);
}

/** A File or Blob of the page. */
export class BlobPart {
  constructor(blob, name) {
    this.blob = blob;
    this.name = name;
    this.size = blob.size;
    /** Reading costs nothing but time. */
    this.local = true;
  }

  async read(from, n) {
    let b;
    try {
      const piece = this.blob.slice(from, from + n);
      b = await (apart && n >= APART ? apart.read(piece) : piece.arrayBuffer());
    } catch (e) {
      throw new ChangedError(`${this.name} can't be read any more: it was changed, moved or deleted while it was open (${e.name})`);
    }
    if (b.byteLength !== Math.min(n, this.size - from)) {
      throw new ChangedError(`${this.name} is shorter than when it was opened`);
    }
    return new Uint8Array(b);
  }
}

/** The first bytes of a part, as a part. */
export class Slice {
  constructor(part, size) {
    this.part = part;
    this.name = part.name;
    this.local = part.local;
    this.size = size;
  }

  read(from, n) {
    return this.part.read(from, Math.min(n, Math.max(0, this.size - from)));
  }
}

/** How long the end of an answer may come behind its last byte. */
const LINGER = 250;

let ending = new AbortController().signal;

/** Requests from now on end with signal, by its reason. */
export function endWith(signal) {
  ending = signal;
}

/** A request, and what is asked of its answer: never more than that is read. */
class Asked {
  constructor(url, headers) {
    this.url = url;
    this.headers = headers;
    this.signal = ending;
    this.control = new AbortController();
    this.end = () => this.control.abort(this.signal.reason);
  }

  /** Waits for p, for as long as the server may take. */
  async wait(p) {
    this.signal.throwIfAborted();
    this.signal.addEventListener('abort', this.end);
    try {
      return await patient(this.control, p(), `${this.url}: `);
    } finally {
      this.signal.removeEventListener('abort', this.end);
    }
  }

  async answer() {
    try {
      return await this.wait(() => fetch(this.url, { headers: this.headers, signal: this.control.signal, credentials: 'same-origin', redirect: 'follow', cache: 'no-store' }));
    } catch (e) {
      if (this.control.signal.aborted) throw e;
      const other = new URL(this.url).origin !== self.location.origin;
      throw new Error(`${this.url} can't be reached: ${e.message}${other ? '. Another site must allow it (CORS), and this page\'s Content-Security-Policy too' : ''}`);
    }
  }

  /** The n bytes of an answer: fewer where it ends early, one more where it gives more. */
  async body(r, n) {
    if (!r.body) return new Uint8Array(0);
    const out = new Uint8Array(n + 1);
    const reader = r.body.getReader();
    let at = 0;
    try {
      while (at <= n) {
        const next = at < n ? await this.wait(() => reader.read()) : await this.wait(() => Promise.race([reader.read(), later()]));
        if (next.done) break;
        const b = next.value.subarray(0, n + 1 - at);
        out.set(b, at);
        at += b.length;
      }
    } finally {
      // Of what is not read here nothing may come.
      reader.cancel().catch(() => {});
    }
    return out.subarray(0, at);
  }
}

const later = () => new Promise((r) => { setTimeout(() => r({ done: true }), LINGER); });

/** A file behind a URL of a server that answers range requests. */
export class UrlPart {
  static async open(url, name) {
    const p = new UrlPart();
    p.url = url;
    p.name = name;
    const q = new Asked(url, { Range: 'bytes=0-0' });
    const r = await q.answer();
    if (r.status === 206) {
      const m = /^bytes \d+-\d+\/(\d+)$/.exec(r.headers.get('Content-Range') ?? '');
      if (!m) throw new Error(`${name}: the server hides the file's length (it must allow the header Content-Range to be read)`);
      p.size = Number(m[1]);
      if (p.size > MAX_SIZE) throw new Error(`${name}: the server claims a length of ${m[1].slice(0, 30)} bytes`);
      p.tag = r.headers.get('ETag');
      p.modified = r.headers.get('Last-Modified');
      if ((await q.body(r, 1)).length !== 1) throw new Error(`${name}: the server gives other bytes than those that are asked for`);
      return p;
    }
    // What else it says is not read.
    r.body?.cancel().catch(() => {});
    if (r.status === 416) {
      const total = /^bytes \*\/(\d{1,30})$/.exec(r.headers.get('Content-Range') ?? '')?.[1] ?? '0';
      if (total !== '0') throw new Error(`${name}: the server has ${total} bytes and gives none of them`);
      p.size = 0;
      return p;
    }
    if (r.status === 200) {
      // No ranges: an empty file, or a server that can't.
      if (r.headers.get('Content-Length') === '0') {
        p.size = 0;
        return p;
      }
      throw new Error(`${name}: the server doesn't answer range requests; download the file and open it from disk`);
    }
    throw new Error(`${name}: the server answers ${r.status} ${r.statusText}`);
  }

  /** What tells that an answer is of another file than the one that was opened; '' for nothing. */
  changed(r, total) {
    const is = (now, then) => now !== null && then !== null && now !== then;
    if (total !== undefined && total !== '*' && Number(total) !== this.size) return `it has ${total} bytes and had ${this.size}`;
    if (is(r.headers.get('ETag'), this.tag)) return `its ETag is ${r.headers.get('ETag').slice(0, 60)} and was ${this.tag.slice(0, 60)}`;
    if (is(r.headers.get('Last-Modified'), this.modified)) return `it was modified ${r.headers.get('Last-Modified').slice(0, 60)}`;
    return '';
  }

  async read(from, n) {
    n = Math.min(n, this.size - from);
    if (n <= 0) return new Uint8Array(0);
    const headers = { Range: `bytes=${from}-${from + n - 1}` };
    const version = this.tag && !this.tag.startsWith('W/') ? this.tag : this.modified;
    if (version) headers['If-Range'] = version;
    const q = new Asked(this.url, headers);
    const r = await q.answer();
    const refuse = (e) => {
      r.body?.cancel().catch(() => {});
      throw e;
    };
    if (r.status === 200 || r.status === 416) refuse(new ChangedError(`${this.name} was changed while it was open`));
    if (r.status !== 206) refuse(new Error(`${this.name}: the server answers ${r.status} ${r.statusText}`));
    const got = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(r.headers.get('Content-Range') ?? '');
    const changed = this.changed(r, got?.[3]);
    if (changed) refuse(new ChangedError(`${this.name} was changed while it was open: ${changed.slice(0, 200)}`));
    if (got && Number(got[1]) !== from) refuse(new ChangedError(`${this.name}: the server gave bytes from ${got[1].slice(0, 30)} on where those from ${from} on were asked for`));
    if (got && Number(got[2]) !== from + n - 1) refuse(new ChangedError(`${this.name}: the server gave bytes up to ${got[2].slice(0, 30)} where those up to ${from + n - 1} were asked for`));
    const b = await q.body(r, n);
    if (b.length !== n) throw new ChangedError(`${this.name}: the server gave ${b.length > n ? 'more than ' : `${b.length} of `}${n} bytes`);
    return b;
  }
}

/** The bytes of a connection: parts with the offset of their first byte. */
export class Stream {
  constructor(parts) {
    /** @type {{start: number, end: number, part: object}[]} in rising order */
    this.parts = parts;
    this.start = parts.length ? parts[0].start : 0;
    this.end = parts.length ? parts[parts.length - 1].end : 0;
    this.bytesRead = 0;
  }

  partAt(offset) {
    let lo = 0;
    let hi = this.parts.length - 1;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (this.parts[mid].start <= offset) lo = mid;
      else hi = mid - 1;
    }
    return this.parts[lo];
  }

  /** Where the bytes end that follow those at an offset without a hole. */
  endOf(offset) {
    let end = offset;
    for (const p of this.parts) {
      if (p.end <= end) continue;
      if (p.start > end) break;
      end = p.end;
    }
    return end;
  }

  /** Up to n bytes from an offset on, across parts, up to a hole or the end. */
  async read(offset, n) {
    const pieces = [];
    let got = 0;
    while (got < n) {
      const p = this.parts.length ? this.partAt(offset + got) : null;
      if (!p || offset + got < p.start || offset + got >= p.end) break;
      const b = await p.part.read(offset + got - p.start, Math.min(n - got, p.end - offset - got));
      if (b.length === 0) break;
      pieces.push(b);
      got += b.length;
    }
    this.bytesRead += got;
    if (pieces.length === 1) return pieces[0];
    const all = new Uint8Array(got);
    let at = 0;
    for (const b of pieces) {
      all.set(b, at);
      at += b.length;
    }
    return all;
  }
}

const SMALL = 16 << 10;
const LARGE = 4 << 20;
/** After so many bytes without a jump the next reads are under way while this one is worked on. */
const AHEAD = 3 << 20;
/** How many reads are under way then. */
const DEPTH = 2;
/** How much is copied together at least where a view lies over the edge of two reads. */
const JOIN = 64 << 10;

/**
 * The window of one walk: small where the walk jumps, so that skipped payloads
 * are not read; growing to large where it goes straight on, with the next reads
 * already on their way.
 */
export class Window {
  /** first is how much is read at first, and at least after a jump. */
  constructor(stream, first = SMALL) {
    this.stream = stream;
    this.least = first;
    this.size = first;
    /** @type {{start: number, end: number, bytes: Uint8Array}[]} what is here, one behind the other */
    this.chunks = [];
    /** @type {{start: number, length: number, bytes: Promise<Uint8Array>}[]} what is on its way, behind the chunks */
    this.coming = [];
    this.run = 0; // where the walk began to go straight on
    this.last = 0; // the last place that was looked at
    this.usual = 0; // how far it usually goes before it jumps
  }

  get start() { return this.chunks.length ? this.chunks[0].start : 0; }

  get end() { return this.chunks.length ? this.chunks[this.chunks.length - 1].end : 0; }

  has(pos, need) {
    return pos >= this.start && pos + need <= this.end;
  }

  /** Reads until need bytes from pos on are there. What lies before pos is let go. */
  async ensure(pos, need) {
    if (this.has(pos, need)) return;
    const near = this.chunks.length > 0 && pos >= this.start && pos - this.end < Math.max(1, this.size / 4);
    if (!near) {
      this.chunks = [];
      this.coming = [];
      // What it used before this jump is what it will use behind it.
      this.usual = (this.usual + Math.max(0, this.last - this.run)) / 2;
      this.run = pos;
      this.size = Math.min(LARGE, Math.max(this.least, 2 ** Math.ceil(Math.log2(this.usual * 1.25 + 1))));
    }
    while (!this.has(pos, need)) {
      if (this.coming.length === 0) {
        if (near) this.size = Math.min(2 * this.size, LARGE);
        const from = this.chunks.length && pos <= this.end ? this.end : pos;
        this.ask(from, Math.max(pos + need - from, this.size));
      }
      const { start, length, bytes } = this.coming.shift();
      const b = await bytes;
      // A hole, or the end: what was asked for behind it does not follow.
      if (b.length < length) this.coming = [];
      if (b.length === 0) throw new ChangedError('the file is shorter than when it was opened');
      if (start !== this.end) this.chunks = [];
      this.chunks.push({ start, end: start + b.length, bytes: b });
      while (this.chunks.length > 1 && this.chunks[0].end <= pos) this.chunks.shift();
      if (pos + need > this.end && this.end >= this.stream.end) throw new ChangedError('the file is shorter than when it was opened');
    }
    this.ahead();
  }

  ask(start, length) {
    const bytes = this.stream.read(start, length);
    bytes.catch(() => {}); // seen when it is waited for
    this.coming.push({ start, length, bytes });
  }

  ahead() {
    while (this.coming.length < DEPTH) {
      const behind = this.coming[this.coming.length - 1];
      const start = behind ? behind.start + behind.length : this.end;
      if (this.end - this.run < AHEAD || start >= this.stream.end) return;
      this.size = Math.min(2 * this.size, LARGE);
      this.ask(start, this.size);
    }
  }

  /**
   * What is there from pos on, at least need bytes, at most n. It is a view,
   * good until the next call of ensure, where it does not lie over an edge.
   */
  view(pos, need, n) {
    if (pos > this.last || pos < this.run) this.last = pos;
    const i = this.chunks.findIndex((c) => pos < c.end);
    const { start, end, bytes } = this.chunks[i];
    if (pos + need <= end) return bytes.subarray(pos - start, pos - start + n);
    const joined = new Uint8Array(Math.min(n, this.end - pos, Math.max(need, end - pos + JOIN)));
    let at = 0;
    for (const c of this.chunks.slice(i)) {
      const b = c.bytes.subarray(pos + at - c.start, pos + joined.length - c.start);
      joined.set(b, at);
      at += b.length;
    }
    return joined;
  }
}
