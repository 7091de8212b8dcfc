// The page's one Trusted Types policy: the addresses of its own workers.

/* global SINGLE, WORKER_SOURCE, READ_SOURCE */

const policy = globalThis.trustedTypes?.createPolicy('wiretape', { createScriptURL: (u) => u });
/** From disk a page can start no file as a worker, only what it holds itself. */
const held = SINGLE ? { 'worker.js': address(WORKER_SOURCE), 'read.js': address(READ_SOURCE) } : {};

function address(source) {
  return URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
}

/** Starts one of the page's workers; its name is what it is there for. */
export function startWorker(file, name) {
  const url = held[file] ?? new URL(file, document.baseURI).href;
  return new Worker(policy ? policy.createScriptURL(url) : url, { type: SINGLE ? 'classic' : 'module', name });
}
