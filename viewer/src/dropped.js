// What was dropped on the page: files, and folders with all that is in them.

import { many } from './format.js';
import { MAX_FILES } from './listing.js';

/** How deep folders are gone into. */
export const MAX_DEPTH = 32;
/** How many files of a folder are asked for at a time. */
const BATCH = 64;

const files = (n) => many(n, 'file');

/**
 * Takes the entries of a drop, which are only good during its event, at once, and
 * gives {files: [{path, file}], notes}: notes say what was left out, and why.
 * progress is called with how many files there are so far.
 * @param {DataTransfer} transfer
 */
export async function gather(transfer, progress) {
  const items = [...transfer.items].filter((i) => i.kind === 'file').map((i) => i.webkitGetAsEntry?.() ?? i.getAsFile()).filter(Boolean);
  const out = [];
  const left = { over: false, deep: 0, unreadable: 0, why: '' };
  const fileOf = (entry, path) => new Promise((resolve) => {
    entry.file((file) => resolve({ path: path + entry.name, file }), (e) => {
      left.unreadable++;
      left.why ||= e.message;
      resolve(null);
    });
  });
  const read = (reader) => new Promise((resolve) => {
    reader.readEntries(resolve, (e) => {
      left.unreadable++;
      left.why ||= e.message;
      resolve([]);
    });
  });
  // Folders are gone through one after the other, not into each other: no depth
  // of nesting is a depth of calls.
  const folders = [];
  const take = async (entries, path, depth) => {
    for (let i = 0; i < entries.length; i += BATCH) {
      const some = entries.slice(i, i + BATCH);
      for (const e of some) {
        if (!e.isDirectory || e instanceof File) continue;
        if (depth >= MAX_DEPTH) left.deep++;
        else folders.push({ entry: e, path: `${path}${e.name}/`, depth: depth + 1 });
      }
      const got = await Promise.all(some.filter((e) => e instanceof File || e.isFile).map((e) => (e instanceof File ? { path: e.name, file: e } : fileOf(e, path))));
      for (const f of got) {
        if (!f) continue;
        if (out.length >= MAX_FILES) left.over = true;
        else out.push(f);
      }
      progress(out.length);
      if (left.over) return;
    }
  };
  await take(items, '', 0);
  for (let f = folders.shift(); f && !left.over; f = folders.shift()) {
    const reader = f.entry.createReader();
    for (let list = await read(reader); list.length && !left.over; list = await read(reader)) await take(list, f.path, f.depth);
  }
  const notes = [];
  if (left.over) notes.push(`Only the first ${files(MAX_FILES)} were taken.`);
  if (left.deep) notes.push(`Folders more than ${MAX_DEPTH} deep were left out.`);
  if (left.unreadable) notes.push(`${files(left.unreadable)} or folders could not be read: ${left.why}.`);
  return { files: out, notes };
}
