// What the builds of plugins and of MCP servers share: one bundle of everything that an entry imports, and the place in the author's own
// file or package of what cannot work in it. Stands behind lacking.mjs in one module.

import { writeFile } from "node:fs/promises";
import { builtinModules } from "node:module";
import { join, relative, resolve, sep } from "node:path";

import { componentize } from "@bytecodealliance/componentize-js";
import { build } from "esbuild";

// What a plugin that never names these words cannot use. Guessing too much costs an import that is never called, guessing too
// little a clock that stands still: so any mention counts.
const FEATURES = {
  stdio: /\bconsole\b/,
  random: /\b(random|crypto)\b/,
  clocks: /\b(Date|performance|setTimeout|setInterval)\b/,
  http: /\bfetch\b/,
};

// What stands in for a module of Node.js.
const INSTEAD = {
  buffer: "Use `Uint8Array`, or `npm install buffer`.",
  child_process: "There are no other processes.",
  crypto: "Use the global `crypto`.",
  events: "Use `EventTarget`, or `npm install events`.",
  fs: "Plugins in JavaScript reach no files; `kv` of the SDK keeps data.",
  http: "Use `fetch`.",
  https: "Use `fetch`.",
  net: "Use `fetch`; there are no sockets.",
  perf_hooks: "Use the global `performance`.",
  stream: "Use `ReadableStream` and its like, or a package made for browsers.",
  timers: "Use the global `setTimeout`.",
  url: "Use the global `URL`.",
  util: "Use `TextEncoder` and its like, or `npm install util`.",
  worker_threads: "There are no threads.",
};

const { entry, project, sdk, packages, wit, scratch, output } = JSON.parse(process.argv[2]);

/** Ends the build; what is on stdout is for its last line. */
function fail(text) {
  console.log(text);
  process.exit(1);
}

function shown(file) {
  const own = relative(project, file);
  return own.startsWith("..") ? file : own;
}

/** The namespace of modules that are not there. */
const MISSING = "missing";

/** Modules of Node.js: an `import` of one is an error, a `require` may never be reached, and throws when it is. */
const node = {
  name: "node",
  setup(building) {
    const builtin = new RegExp(`^(node:.+|${builtinModules.filter((name) => !name.startsWith("_")).join("|")})$`);
    building.onResolve({ filter: builtin }, async ({ path, kind, importer, resolveDir, pluginData }) => {
      if (pluginData?.isAgain) return undefined;
      if (!path.startsWith("node:")) {
        const found = await building.resolve(path, { kind, importer, resolveDir, pluginData: { isAgain: true } });
        if (found.errors.length === 0) return found;
      }
      const name = path.replace("node:", "");
      const instead = INSTEAD[name.split("/")[0]] ?? "Look for a package that does not need it.";
      const text = `\`${name}\` is a module of Node.js, which a component does not have. ${instead}`;
      if (kind === "import-statement") return { errors: [{ text }] };
      return { path: name, namespace: MISSING, pluginData: text, warnings: [{ text: `${text} What needs it fails.` }] };
    });
    building.onLoad({ filter: /.*/, namespace: MISSING }, ({ pluginData }) => ({
      contents: `throw new Error(${JSON.stringify(pluginData)});`,
    }));
  },
};

/** Bundles what `more` names, with what it needs beside what holds for every component. */
function bundle(more) {
  const options = {
    absWorkingDir: project,
    bundle: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    mainFields: ["module", "main"],
    external: ["bulkhead:*", "wasi:*"],
    plugins: [node],
    outfile: join(scratch, "plugin.js"),
    sourcemap: "external",
    write: false,
    metafile: true,
    logLevel: "warning",
    ...more,
  };
  // esbuild has said why.
  return build(options).catch(() => fail(`${shown(entry)}: it cannot be bundled, for what stands above`));
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** The lines of a source map: for each of the bundle, its segments as [column, source, line, column there], all from 0. */
function decode(mappings) {
  const at = [0, 0, 0, 0];
  return mappings.split(";").map((line) => {
    at[0] = 0;
    const segments = line.split(",").filter((text) => text !== "");
    return segments.flatMap((text) => {
      let [value, shift, field] = [0, 0, 0];
      for (const digit of text) {
        const bits = DIGITS.indexOf(digit);
        value += (bits & 31) << shift;
        shift += 5;
        if (bits & 32) continue;
        if (field < at.length) at[field] += value & 1 ? -(value >> 1) : value >> 1;
        [value, shift, field] = [0, 0, field + 1];
      }
      return field < at.length ? [] : [[...at]];
    });
  });
}

/** Says where something of the bundle comes from; its line is from 1 and its column from 0. */
function places({ sources, sourcesContent, mappings }) {
  const lines = decode(mappings);
  return (line, column) => {
    const segment = (lines[line - 1] ?? []).findLast(([begin]) => begin <= column) ?? lines[line - 1]?.[0];
    if (segment === undefined) return undefined;
    const [, source, sourceLine, sourceColumn] = segment;
    const path = resolve(scratch, sources[source]);
    const code = (sourcesContent[source] ?? "").split("\n")[sourceLine] ?? "";
    return { path, file: shown(path), line: sourceLine + 1, column: sourceColumn + 1, code };
  };
}

function frame({ line, column, code }) {
  // A file that was made small has everything in one line.
  if (code.length > 200) return "";
  const gutter = " ".repeat(String(line).length);
  return `\n ${line} | ${code}\n ${gutter} | ${" ".repeat(column - 1)}^`;
}

/** The places of the bundle that a text names, from the innermost. */
function placesIn(said, placeOf) {
  return [...said.matchAll(/plugin\.js:(\d+):(\d+)/g)].map(([, line, column]) => placeOf(Number(line), Number(column) - 1));
}

/** Whether it is the author's, or a package's. */
function isOwn(place) {
  const isOfSdk = sdk !== null && place && !relative(sdk, place.path).startsWith("..");
  return place && !isOfSdk && !isStandIn(place);
}

/** Whether it is in what stands for a missing module. */
function isStandIn({ path }) {
  return relative(scratch, path).startsWith(`${MISSING}:`);
}

/** What only a call has and `watch` does not know ends the engine without a place; its backtrace helps nobody. */
function trapped(said) {
  const called = /unknown imported function: '([^']+)'/.exec(said)?.[1];
  const why = called ? `, at a call of ${called}` : "";
  return `${shown(entry)}: the engine ended while the module was loaded${why}. Move what runs at the top of a module into a tool.`;
}

/** What the engine said of the bundle, as one line with the innermost place outside of the SDK, and what to do about it. */
function mistake(said, placeOf) {
  const text = /plugin\.js:\d+:\d+ (.*)/.exec(said)?.[1];
  const found = placesIn(said, placeOf);
  const place = found.find(isOwn);
  if (said.includes("function trapped")) return trapped(said);
  if (text === undefined || !place) return said;
  // The SDK, or what stands for a module, says what is wrong with the plugin; which error it throws is no help.
  const plain = isOwn(found[0]) ? text : text.replace(/^(Type)?Error: /, "");
  const about = lacking(text) ?? plain;
  return `${place.file}:${place.line}:${place.column}: ${about}${frame(place)}`;
}

/** Names of the bundle that only fail in a call. */
function warn(source, placeOf) {
  const told = new Set();
  for (const { seen, what, instead, isSeenInPackages = true } of LACKING) {
    for (const { index } of seen ? source.matchAll(seen) : []) {
      const before = source.slice(0, index).split("\n");
      const place = placeOf(before.length, before.at(-1).length);
      if (!place || told.has(place.file + what)) continue;
      if (!isSeenInPackages && place.path.split(sep).includes("node_modules")) continue;
      told.add(place.file + what);
      const text = `${what} is not there in a component: a call that gets here fails. ${instead}`;
      console.error(`warning: ${place.file}:${place.line}:${place.column}: ${text}`);
    }
  }
}

/** The text of a bundle, and of its source map. */
function texts({ outputFiles }) {
  const text = (end) => outputFiles.find(({ path }) => path.endsWith(end)).text;
  return { source: text(".js"), placeOf: places(JSON.parse(text(".map"))) };
}

/** What a component needs of the outside world, as far as it is left out of one whose bundle names nothing of it. */
function unusedFeatures(source) {
  return Object.keys(FEATURES).filter((feature) => !FEATURES[feature].test(source));
}
