// The page's end of the worker: asking, and hearing what happens meanwhile.

import { startWorker } from './trusted.js';

/* global SINGLE, WASM_GZIP */

/** An answer that belongs to what is no longer shown. */
export class Stale extends Error {}

export class Link {
  constructor() {
    this.worker = startWorker('worker.js', 'decoder');
    this.next = 1;
    this.waiting = new Map();
    this.generation = 0;
    this.heard = {};
    this.worker.onmessage = ({ data }) => this.message(data);
    this.reader = startWorker('read.js', 'reader');
    this.worker.onerror = this.reader.onerror = (e) => this.heard.failed?.({ what: 'worker', message: e.message || 'the worker could not be started' });
  }

  message(m) {
    if (m.event) {
      if (m.generation === this.generation) this.heard[m.event]?.(m);
      return;
    }
    const w = this.waiting.get(m.id);
    this.waiting.delete(m.id);
    if (m.error) {
      // Nothing is shown, but what is open can be asked about.
      if (w.moves && m.id === this.last) this.generation = m.generation;
      // What fails of what is no longer shown is no failure.
      if (m.error.cancelled || (w.moves ? m.id !== this.last : w.generation !== this.generation)) w.reject(new Stale());
      else w.reject(Object.assign(new Error(m.error.message), { changed: m.error.changed }));
      return;
    }
    if (w.moves && m.id !== this.last) {
      // Something else was asked to be shown meanwhile.
      w.reject(new Stale());
      return;
    }
    if (w.moves) this.generation = m.result?.generation ?? m.generation;
    else if (w.generation !== this.generation) {
      w.reject(new Stale());
      return;
    }
    w.resolve(m.result);
  }

  on(event, f) {
    this.heard[event] = f;
  }

  /** Asks for something of the connection that is shown. */
  ask(op, args) {
    return this.send(op, args, this.generation, false);
  }

  /** Asks for something that changes what is shown. */
  move(op, args) {
    this.generation = -1; // until the answer is there nothing is of now
    return this.send(op, args, undefined, true);
  }

  send(op, args, generation, moves, transfer) {
    const id = this.next++;
    if (moves) this.last = id;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, moves, generation: this.generation });
      this.worker.postMessage({ id, generation, op, args }, transfer);
    });
  }

  async start() {
    const wasm = SINGLE ? await gunzip(WASM_GZIP) : new URL('./wiretape.wasm', document.baseURI).href;
    const { port1, port2 } = new MessageChannel();
    this.reader.postMessage({ port: port1 }, [port1]);
    return this.send('start', { wasm, reader: port2 }, undefined, false, [port2]);
  }
}

async function gunzip(base64) {
  const raw = atob(base64);
  const b = new Uint8Array(raw.length);
  for (let i = 0; i < b.length; i++) b[i] = raw.charCodeAt(i);
  const s = new Blob([b]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(s).arrayBuffer();
}
