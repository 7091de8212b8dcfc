// The build of the viewer: the decoder by the Go compiler, the page by esbuild,
// into one folder and into one HTML file.
//
//	node build.mjs [OUT]      OUT is by default ../dist/viewer
//
// OUT gets index.html, app.css, app.js, worker.js, read.js, wiretape.wasm and
// their licences: any file server can serve it under any path. Beside it comes
// viewer.html, all of it in one file that opens from disk. The folder is copied to
// replay/view/dist too, from where it goes into the replay command.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '..');
const out = resolve(process.argv[2] ?? join(root, 'dist', 'viewer'));
const single = join(dirname(out), 'viewer.html');
/** Where the replay command takes the page from. */
const embedded = join(root, 'replay', 'view', 'dist');
const src = join(here, 'src');

/** The most that the decoder may weigh, raw and gzipped (docs/viewer.md). */
const MAX_WASM = 3.6e6;
const MAX_WASM_GZIP = 1.0e6;

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

// The decoder, and the script of the same Go release that starts it.
const wasm = join(out, 'wiretape.wasm');
// What is not run for every frame of a large file is compiled without inlining:
// a twentieth less to load, and the index pass as fast.
const cold = ['replay/segment/...', 'wire/aewr', 'wire/melin', 'wasm/detail', 'wasm/filter'].map((p) => `-gcflags=wiretape/${p}=-l`);
execFileSync('go', ['build', '-trimpath', '-ldflags=-s -w', ...cold, '-o', wasm, './wasm'], {
  cwd: root, stdio: 'inherit', env: { ...process.env, GOOS: 'js', GOARCH: 'wasm', CGO_ENABLED: '0' },
});
const goroot = execFileSync('go', ['env', 'GOROOT'], { cwd: root, encoding: 'utf8' }).trim();
cpSync(join(goroot, 'lib', 'wasm', 'wasm_exec.js'), join(src, 'worker', 'wasm_exec.js'));

const bundle = (entry, format, define) => esbuild.buildSync({
  entryPoints: [join(src, entry)], bundle: true, write: false, format, target: 'es2022', minify: true, legalComments: 'none',
  define, logLevel: 'warning', charset: 'utf8', conditions: ['browser'],
}).outputFiles[0].text;

const html = readFileSync(join(src, 'index.html'), 'utf8');
const css = esbuild.buildSync({ entryPoints: [join(src, 'app.css')], write: false, minify: true }).outputFiles[0].text;
const fill = (parts) => Object.entries(parts).reduce((s, [k, v]) => s.replace(`<!--${k}-->`, () => v), html);
const meta = (policy) => `<meta http-equiv="Content-Security-Policy" content="${policy.join('; ')}">`;

// Served: a policy of the page's own holds even where the server sends none.
// It leaves connect-src to the server's, which may allow another origin.
cpSync(join(src, 'icon.svg'), join(out, 'icon.svg'));
writeFileSync(join(out, 'app.css'), css);
writeFileSync(join(out, 'app.js'), bundle('main.js', 'esm', { SINGLE: 'false', WORKER_SOURCE: '""', READ_SOURCE: '""', WASM_GZIP: '""' }));
writeFileSync(join(out, 'worker.js'), bundle('worker/main.js', 'esm', {}));
writeFileSync(join(out, 'read.js'), bundle('worker/read-worker.js', 'esm', {}));
writeFileSync(join(out, 'index.html'), fill({
  csp: meta(["script-src 'self' 'wasm-unsafe-eval'", "style-src 'self'", "img-src 'self'", "worker-src 'self'", "font-src 'none'", "media-src 'none'",
    "object-src 'none'", "frame-src 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", 'trusted-types wiretape']),
  style: '<link rel="icon" href="icon.svg">\n<link rel="stylesheet" href="app.css">',
  script: '<script type="module" src="app.js"></script>',
}));
writeFileSync(join(out, 'licenses.txt'), licences());

// One file: everything inlined, the script allowed by its hash, workers from
// what the page holds, and no network at all.
const app = bundle('main.js', 'iife', {
  SINGLE: 'true',
  WORKER_SOURCE: JSON.stringify(bundle('worker/main.js', 'iife', {})),
  READ_SOURCE: JSON.stringify(bundle('worker/read-worker.js', 'iife', {})),
  WASM_GZIP: JSON.stringify(gzipSync(readFileSync(wasm), { level: 9 }).toString('base64')),
}).replace(/<\/(script)/gi, '<\\/$1').replace(/<!--/g, '<\\!--');
const hash = (s) => `'sha256-${createHash('sha256').update(s).digest('base64')}'`;
writeFileSync(single, fill({
  csp: meta(["default-src 'none'", `script-src ${hash(app)} 'wasm-unsafe-eval'`, `style-src ${hash(css)}`, 'worker-src blob:', "img-src 'none'",
    "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", 'trusted-types wiretape']),
  style: `<style>${css}</style>`,
  script: `<script>${app}</script>`,
}));

for (const f of readdirSync(embedded)) if (f !== 'README') rmSync(join(embedded, f), { recursive: true });
for (const f of readdirSync(out)) cpSync(join(out, f), join(embedded, f));

const size = statSync(wasm).size;
const packed = gzipSync(readFileSync(wasm), { level: 9 }).length;
console.log(`${out}: decoder ${size} bytes, ${packed} gzipped`);
console.log(`${single}: ${statSync(single).size} bytes`);
if (size > MAX_WASM || packed > MAX_WASM_GZIP) {
  console.error(`the decoder has outgrown its ceiling of ${MAX_WASM} bytes, ${MAX_WASM_GZIP} gzipped`);
  process.exit(1);
}

function licences() {
  const parts = [['Go runtime and wasm_exec.js', join(goroot, 'LICENSE')]];
  for (const p of ['hyparquet', 'hyparquet-compressors', 'fzstd', 'xxhash-wasm', '@noble/hashes']) {
    const folder = join(here, 'node_modules', p);
    parts.push([p, join(folder, readdirSync(folder).find((f) => /^licen[cs]e/i.test(f)))]);
  }
  return parts.map(([name, file]) => `── ${name} ──\n\n${readFileSync(file, 'utf8').trim()}\n`).join('\n');
}
