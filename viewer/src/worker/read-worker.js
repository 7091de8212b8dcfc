// The worker that reads files: a read's bytes pass through the thread that asked
// for them, and the one that decodes has other work. It is given a port first,
// and through it {id, blob}; it answers {id, bytes} or {id, error}.

onmessage = ({ data: { port } }) => {
  port.onmessage = async ({ data: { id, blob } }) => {
    try {
      const bytes = await blob.arrayBuffer();
      port.postMessage({ id, bytes }, [bytes]);
    } catch (e) {
      port.postMessage({ id, error: e.name });
    }
  };
};
