// The page's one Trusted Types policy: the addresses of its own workers.

/* global SINGLE, WORKER_SOURCE, READ_SOURCE */

const policy = globalThis.trustedTypes?.createPolicy('wiretape', { createScriptURL: (u) => u });
/** From disk a page can start no file as a worker, only what it holds itself. */
const held = SINGLE ? { 'worker.js': WORKER_SOURCE, 'read.js': READ_SOURCE } : {};

/** Starts one of the page's workers; its name is what it is there for. */
export function startWorker(file, name) {
  const source = held[file];
  const url = source ? URL.createObjectURL(new Blob([source], { type: 'text/javascript' })) : new URL(file, document.baseURI).href;
  return new Worker(policy ? policy.createScriptURL(url) : url, { type: source ? 'classic' : 'module', name });
}
