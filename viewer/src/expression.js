// What the page does with a filter by the parts that the decoder finds in it: the
// conditions that it joins by "and" at its top, {from, to} and, of one that is a
// single comparison, {field, op, value, not}.

/** A part that takes or leaves out what one of the fields is, or whether there is any. */
const asks = (p, ...fields) => fields.includes(p.field) && ['', '==', '!='].includes(p.op);

// Which parts a condition takes the place of: those that answer its question
// already, the other way round too. Each gives their numbers.

export const sameKind = (parts) => numbers(parts, (p) => asks(p, 'kind', 'type'));

export const sameFinding = (parts) => numbers(parts, (p) => asks(p, 'finding'));

/** The source, and the stream that follows it. */
export const sameSource = (parts) => numbers(parts, (p, i) => asks(p, 'source') || (i > 0 && asks(p, 'stream') && asks(parts[i - 1], 'source')));

/** The span of a field, where the filter holds both ends of it. */
export const sameSpan = (field) => (parts) => {
  const at = (...ops) => numbers(parts, (p) => p.field === field && !p.not && ops.includes(p.op));
  const [lower, upper] = [at('>='), at('<', '<=')];
  return lower.length && upper.length ? [...lower, ...upper] : [];
};

/** The values of a span as they are written, {from, to, whole}, whole where it holds its end; null where there is none. */
export function spanOf(parts, field) {
  if (!parts) return null;
  const list = sameSpan(field)(parts).map((i) => parts[i]);
  const from = list.find((p) => p.op === '>=');
  const to = list.find((p) => p.op !== '>=');
  return from && { from: from.value, to: to.value, whole: to.op === '<=' };
}

function numbers(parts, f) {
  return parts.flatMap((p, i) => (f(p, i) ? [i] : []));
}

/**
 * A filter with a condition more, which takes the place of the parts that ask the
 * same. parts are of expression, null where it is one or the other of several.
 */
export function withCondition(expression, parts, condition, same = () => []) {
  if (!parts) return `(${expression}) and ${condition}`;
  const gone = new Set(same(parts));
  const out = [];
  let at = -1;
  parts.forEach((p, i) => {
    const text = expression.slice(p.from, p.to);
    if (!gone.has(i) && text !== condition) out.push(text);
    else if (at < 0) {
      at = i;
      out.push(condition);
    }
  });
  if (at < 0) out.push(condition);
  return out.join(' and ');
}

/** A value of a filter that is this text and no number: in quotes where it isn't a plain word. */
export const quote = (s) => (/^[A-Za-z_][\w.:/+@-]*$/.test(s) && !/^(and|or|not)$/i.test(s) ? s : `"${s.replace(/["\\]/g, '\\$&')}"`);

/** The tokens of a filter, as far as they are needed where it is still being written: {text, from}. */
export function tokens(expression) {
  const one = /\s+|"(?:\\[^]|[^"\\])*"?|[\w.:/+@\-\u0080-\uffff]+|&&|\|\||[=!<>]=|!~|[^]/y;
  const out = [];
  for (let from = 0; from < expression.length; from = one.lastIndex) {
    one.lastIndex = from;
    const [text] = one.exec(expression);
    if (text.trim()) out.push({ text, from });
  }
  return out;
}
