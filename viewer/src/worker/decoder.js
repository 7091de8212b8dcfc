// The WebAssembly decoder as an object: one instance of the module, its input
// and result buffers, and a method for each of its functions (wasm/main.go).
/* global Go */

import './wasm_exec.js';
import { inflate } from './inflate.js';

/** The version of the functions that this page speaks. */
export const API_VERSION = 3;

/** The most bytes that a walk takes at a time. */
export const FEED = 1 << 20;

const text = new TextDecoder();
const encoder = new TextEncoder();

/** What the decoder says instead of a result. */
export class DecoderError extends Error {}

export class Decoder {
  /** Starts an instance of a compiled module. */
  static async start(module) {
    const go = new Go();
    go.env = { GOGC: '100', GOMEMLIMIT: '40MiB' };
    const d = new Decoder();
    go.importObject.wiretape = {
      inflate: (codec, src, srcLength, dst, dstLength) => {
        const b = d.x.mem.buffer;
        return inflate(codec, new Uint8Array(b, src, srcLength), new Uint8Array(b, dst, dstLength)) ? 0 : 1;
      },
    };
    const instance = await WebAssembly.instantiate(module, go.importObject);
    d.x = instance.exports;
    d.exited = false;
    go.run(instance).then(() => { d.exited = true; });
    const v = d.x.version();
    if (v !== API_VERSION) throw new DecoderError(`the decoder is of version ${v}, the page of ${API_VERSION}: reload the page`);
    return d;
  }

  /** Bytes of linear memory. It never shrinks. */
  get memory() {
    return this.x.mem.buffer.byteLength;
  }

  /** The input buffer with room for n bytes. Good until the next call. */
  input(n) {
    const at = this.x.input(n);
    if (n > 0 && at === 0) throw new DecoderError(`the decoder takes no ${n} bytes at a time`);
    return new Uint8Array(this.x.mem.buffer, at, n);
  }

  give(bytes) {
    this.input(bytes.length).set(bytes);
  }

  resultBytes(n) {
    return new Uint8Array(this.x.mem.buffer, this.x.result(), n);
  }

  check(n) {
    if (n < 0) throw new DecoderError(this.reason());
    return n;
  }

  reason() {
    return text.decode(this.resultBytes(this.x.result_length()));
  }

  json(n) {
    this.check(n);
    return JSON.parse(text.decode(this.resultBytes(n)));
  }

  string(n) {
    this.check(n);
    return text.decode(this.resultBytes(n));
  }

  detect(prefix, end) {
    this.give(prefix);
    return this.json(this.x.detect(end ? 1 : 0));
  }

  protocols() {
    return this.json(this.x.protocol_list());
  }

  open(config) {
    this.give(config);
    this.check(this.x.index_open());
  }

  /** What is known of the axes before the first pass, packed. */
  axes(config) {
    this.give(config);
    this.check(this.x.index_axes());
  }

  firstPass() { return this.check(this.x.pass_first()); }

  rowsPass(packedNumbers) {
    this.give(packedNumbers);
    return this.check(this.x.pass_rows());
  }

  unitPass(row) { return this.check(this.x.pass_unit(row)); }
  framePass(number) { return this.check(this.x.pass_frame(number)); }
  findPass(offset) { return this.check(this.x.pass_find(offset)); }
  filterPass(limit) { return this.check(this.x.pass_filter(limit)); }

  pos(h) { return this.x.pass_pos(h); }
  need(h) { return this.x.pass_need(h); }
  feed(h) { this.check(this.x.pass_feed(h)); }
  end(h) { this.x.pass_end(h); }
  outJSON(h) { return this.json(this.x.pass_out(h)); }
  state(h) { return this.resultBytes(this.check(this.x.pass_state(h))).slice(); }
  outBytes(h) { return this.resultBytes(this.check(this.x.pass_out(h))).slice(); }

  status() { return this.json(this.x.index_status()); }
  sources() { return this.json(this.x.index_sources()); }
  bins() { return this.json(this.x.index_bins()); }
  findings(from, n) { return this.json(this.x.index_findings(from, n)); }

  /** The first row with a finding after a row, or before it with back, of those that the filter takes with filtered; -1 for none. */
  findingRow(row, back, filtered) { return this.x.index_finding_row(row, back ? 1 : 0, filtered ? 1 : 0); }

  /** A stream's name as a filter takes it, by the number that the sources tell it by. */
  streamName(number) { return this.string(this.x.index_stream(number)); }

  /**
   * Sets the filter, or with only looks at it: {wrong: {from, to, message}}, or
   * {parts, arrivals}: what it joins by ands, null where it is one or the other,
   * and its comparisons with times of arrival, each with its place. Where there
   * are any of these, filterArrivals has to follow.
   */
  setFilter(expression, only = false) {
    this.give(encoder.encode(expression));
    return this.json(only ? this.x.filter_parts() : this.x.filter_set());
  }

  /** Which stretches of bytes the filter's comparisons with times of arrival take, packed. */
  filterArrivals(lists) {
    this.give(lists);
    this.check(this.x.filter_arrivals());
  }

  filterWords() { return this.json(this.x.filter_words()); }
  hitCount() { return this.x.hits_count(); }
  hitRank(row) { return this.x.hits_rank(row); }
  hits(from, n) { return this.json(this.x.hits_list(from, n)); }

  /** The buffer for the bytes of the frame to open. */
  unitInput(n) {
    const at = this.x.unit_input(n);
    if (n > 0 && at === 0) throw new DecoderError(`a frame of ${n} bytes is more than the decoder takes`);
    return new Uint8Array(this.x.mem.buffer, at, n);
  }

  openDetail(config) {
    this.give(config);
    return this.json(this.x.detail_open());
  }

  children(packedPath, from, n) {
    this.give(packedPath);
    return this.json(this.x.detail_children(from, n));
  }

  locate(offset) { return this.json(this.x.detail_locate(offset)); }

  checkSegment() { return this.json(this.x.segment_check()); }

  fieldJSON(packedPath) {
    this.give(packedPath);
    return this.string(this.x.detail_json());
  }
}
