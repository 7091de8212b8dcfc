// The same vectors through the native and the WebAssembly build give the same
// frames, fields and findings, byte for byte.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { root, test } from './browser.mjs';
import { aewr, dendro, generate, melin, work } from './fixtures.mjs';
import { lines } from './lines.mjs';

const native = join(work, 'lines');
execFileSync('go', ['build', '-o', native, './viewer/test/lines'], { cwd: root, stdio: 'inherit' });

for (const [name, list, least] of [['dendro', dendro(), 50], ['melin', melin(), 20], ['AEWR', aewr(), 30]]) {
  test(`${name}: the native and the WebAssembly decoder say the same of every vector`, async () => {
    assert.ok(list.length >= least, `${list.length} fixtures`);
    for (const f of list) {
      const want = execFileSync(native, [f.file], { encoding: 'utf8', maxBuffer: 1 << 28 });
      assert.ok(want.length > 20);
      const got = await lines([f.file]);
      assert.ok(got === want, `${f.name} differs at byte ${firstDifference(got, want)}`);
    }
  });
}

test('hostile texts are the same in both', async () => {
  const f = generate('hostile', join(work, 'hostile.stream'));
  const want = execFileSync(native, [f], { encoding: 'utf8', maxBuffer: 1 << 28 });
  const got = await lines([f]);
  assert.ok(got === want, `differs at byte ${firstDifference(got, want)}`);
  // What changes the line around it never leaves the decoder as it is.
  for (const l of got.split('\n').filter((x) => x.startsWith('[{"row"'))) assert.doesNotMatch(l, /[\u202a-\u202e\u2066-\u2069\u0000-\u0008]/);
});

function firstDifference(a, b) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  return `${i}: ${JSON.stringify(a.slice(Math.max(0, i - 80), i + 80))} and ${JSON.stringify(b.slice(Math.max(0, i - 80), i + 80))}`;
}
