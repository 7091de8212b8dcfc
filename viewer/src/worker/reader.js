// Reading a connection's bytes: parts that lie one after the other, each a file
// on disk, a file behind a URL read by ranges, or a compressed one; and the
// window that follows a walk over them.

/** A source that is not what it was when it was opened. */
export class ChangedError extends Error {}

/** A File or Blob of the page. */
export class BlobPart {
  constructor(blob, name) {
    this.blob = blob;
    this.name = name;
    this.size = blob.size;
  }

  async read(from, n) {
    let b;
    try {
      b = await this.blob.slice(from, from + n).arrayBuffer();
    } catch (e) {
      throw new ChangedError(`${this.name} can't be read any more: it was changed, moved or deleted while it was open (${e.name})`);
    }
    if (b.byteLength !== Math.min(n, this.size - from)) {
      throw new ChangedError(`${this.name} is shorter than when it was opened`);
    }
    return new Uint8Array(b);
  }
}

/** A file behind a URL of a server that answers range requests. */
export class UrlPart {
  static async open(url, name) {
    const p = new UrlPart();
    p.url = url;
    p.name = name;
    const r = await ask(url, { headers: { Range: 'bytes=0-0' } });
    if (r.status === 206) {
      const m = /^bytes \d+-\d+\/(\d+)$/.exec(r.headers.get('Content-Range') ?? '');
      if (!m) throw new Error(`${name}: the server hides the file's length (it must allow the header Content-Range to be read)`);
      p.size = Number(m[1]);
      const tag = r.headers.get('ETag');
      p.version = tag && !tag.startsWith('W/') ? tag : r.headers.get('Last-Modified');
      await r.arrayBuffer();
      return p;
    }
    if (r.status === 416) {
      p.size = 0;
      return p;
    }
    if (r.status === 200) {
      // No ranges: an empty file, or a server that can't.
      await r.body?.cancel();
      if (r.headers.get('Content-Length') === '0') {
        p.size = 0;
        return p;
      }
      throw new Error(`${name}: the server doesn't answer range requests; download the file and open it from disk`);
    }
    throw new Error(`${name}: the server answers ${r.status} ${r.statusText}`);
  }

  async read(from, n) {
    n = Math.min(n, this.size - from);
    if (n <= 0) return new Uint8Array(0);
    const headers = { Range: `bytes=${from}-${from + n - 1}` };
    if (this.version) headers['If-Range'] = this.version;
    const r = await ask(this.url, { headers });
    if (r.status === 200 || r.status === 416) {
      await r.body?.cancel();
      throw new ChangedError(`${this.name} was changed while it was open`);
    }
    if (r.status !== 206) throw new Error(`${this.name}: the server answers ${r.status} ${r.statusText}`);
    const b = new Uint8Array(await r.arrayBuffer());
    if (b.length !== n) throw new ChangedError(`${this.name}: the server gave ${b.length} of ${n} bytes`);
    return b;
  }
}

async function ask(url, options) {
  try {
    return await fetch(url, { ...options, credentials: 'same-origin', redirect: 'follow', cache: 'no-store' });
  } catch (e) {
    throw new Error(`${url} can't be reached: ${e.message}. Another site must allow it (CORS), and this page's Content-Security-Policy too`);
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
/** After so many bytes without a jump the next window is read while this one is worked on. */
const AHEAD = 3 << 20;

/**
 * The window of one walk: small where the walk jumps, so that skipped payloads
 * are not read; growing to large where it goes straight on, with the next one
 * already on its way.
 */
export class Window {
  /** first is how much is read at first, and at least after a jump. */
  constructor(stream, first = SMALL) {
    this.stream = stream;
    this.least = first;
    this.size = first;
    this.start = 0;
    this.bytes = new Uint8Array(0);
    this.next = null; // {start, length, promise}
    this.run = 0; // where the walk began to go straight on
    this.last = 0; // the last place that was looked at
    this.usual = 0; // how far it usually goes before it jumps
  }

  get end() {
    return this.start + this.bytes.length;
  }

  has(pos, need) {
    return pos >= this.start && pos + need <= this.end;
  }

  /** Reads until need bytes from pos on are there. */
  async ensure(pos, need) {
    if (this.has(pos, need)) return;
    const inside = pos >= this.start && pos <= this.end;
    const near = inside || (pos > this.end && pos - this.end < this.size / 4);
    if (this.next && near && pos < this.next.start + this.next.length) {
      const b = await this.next.promise;
      const from = this.next.start;
      this.next = null;
      const tail = pos < this.end ? this.bytes.subarray(pos - this.start) : null;
      if (!tail || tail.length === 0) {
        this.start = from;
        this.bytes = b;
      } else {
        const joined = new Uint8Array(tail.length + b.length);
        joined.set(tail);
        joined.set(b, tail.length);
        this.start = pos;
        this.bytes = joined;
      }
      this.ahead();
      if (this.has(pos, need)) return;
    }
    this.next = null;
    if (near && this.bytes.length > 0) {
      this.size = Math.min(2 * this.size, LARGE);
    } else {
      // What it used before this jump is what it will use behind it.
      this.usual = (this.usual + Math.max(0, this.last - this.run)) / 2;
      this.run = pos;
      this.size = Math.min(LARGE, Math.max(this.least, 2 ** Math.ceil(Math.log2(this.usual * 1.25 + 1))));
    }
    this.bytes = await this.stream.read(pos, Math.max(need, this.size));
    this.start = pos;
    this.ahead();
    if (!this.has(pos, need)) throw new ChangedError('the file is shorter than when it was opened');
  }

  ahead() {
    if (this.end - this.run < AHEAD || this.end >= this.stream.end) return;
    const start = this.end;
    this.size = Math.min(2 * this.size, LARGE);
    const promise = this.stream.read(start, this.size);
    promise.catch(() => {}); // seen when it is waited for
    this.next = { start, length: this.size, promise };
  }

  /** What is there from pos on, at most n bytes. */
  view(pos, n) {
    if (pos > this.last || pos < this.run) this.last = pos;
    return this.bytes.subarray(pos - this.start, pos - this.start + n);
  }
}
