// How long a server is waited for.

/** How long a server may give nothing, in milliseconds. */
const PATIENCE = 60000;

/** Waits for p, a request of control or a piece of its answer, for as long as the server may take; who begins what is said where it takes longer. */
export async function patient(control, p, who = '') {
  const timer = setTimeout(() => control.abort(new Error(`${who}the server has given nothing for ${PATIENCE / 1000} s`)), PATIENCE);
  try {
    return await p;
  } catch (e) {
    // Firefox gives an error of its own for a body whose request was ended.
    throw control.signal.aborted ? control.signal.reason : e;
  } finally {
    clearTimeout(timer);
  }
}
