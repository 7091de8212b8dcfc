// What a person has chosen in the view, kept in this browser where it lets us.

const KEY = 'wiretape-viewer';
const defaults = {
  theme: 'system', // system, light, dark
  time: 'utc', // utc, local, relative, raw
  axis: 'bytes', // bytes, time, arrival
  hidden: [], // columns that are not shown
  widths: {}, // of columns, in pixels
  filter: '',
  side: true, // the side panel is open
  list: 46, // the list's share of the height, in percent
  tree: 46, // the tree's share of the width, in percent
};

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') ?? {};
  } catch {
    return {}; // No storage: the choices last as long as the page.
  }
}

const kept = read();
const valid = (k, v) => typeof v === typeof defaults[k] && Array.isArray(v) === Array.isArray(defaults[k]) && v !== null;

export const settings = { ...structuredClone(defaults) };
for (const k of Object.keys(defaults)) if (valid(k, kept[k])) settings[k] = kept[k];

export function set(k, v) {
  settings[k] = v;
  try {
    // What another tab has chosen meanwhile stays.
    localStorage.setItem(KEY, JSON.stringify({ ...read(), [k]: v }));
  } catch {
    // As above.
  }
}
