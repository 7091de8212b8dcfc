// The page's one Trusted Types policy: the addresses of its own workers.

const policy = globalThis.trustedTypes?.createPolicy('wiretape', { createScriptURL: (u) => u });

/** Starts a worker: one of the page's files, or a source that the page holds. */
export function startWorker(file, source) {
  const own = source !== undefined;
  const url = own ? URL.createObjectURL(new Blob([source], { type: 'text/javascript' })) : new URL(file, document.baseURI).href;
  // From disk a page can start no file as a worker, only what it holds itself.
  return new Worker(policy ? policy.createScriptURL(url) : url, { type: own ? 'classic' : 'module' });
}
