// Makes a component of a plugin: one bundle of everything that it imports, then componentize-js with no more of the outside
// world than the bundle names.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";

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

const { entry, sdk, wit, scratch, output } = JSON.parse(process.argv[2]);

const OFFERS = ["tools", "resources", "prompts", "completions"];

function bundle(define) {
  const options = {
    entryPoints: [entry],
    bundle: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    mainFields: ["module", "main"],
    conditions: ["bulkhead"],
    external: ["bulkhead:*", "wasi:*"],
    alias: { "bulkhead-plugin": sdk },
    outfile: join(scratch, "plugin.js"),
    write: false,
    metafile: true,
    logLevel: "warning",
    define,
  };
  return build(options).catch(() => process.exit(1)); // esbuild has said why.
}

// Twice: what the module exports is known when it is bundled, and the SDK compares that with what the plugin has.
const [{ exports }] = Object.values((await bundle({})).metafile.outputs);
const offered = OFFERS.filter((name) => exports.includes(name));
const bundled = await bundle({ BULKHEAD_EXPORTS: JSON.stringify(offered) });

const source = bundled.outputFiles[0].text;
const sourcePath = join(scratch, "plugin.js");
await writeFile(sourcePath, source);

const unused = Object.keys(FEATURES).filter((feature) => !FEATURES[feature].test(source));
try {
  const { component } = await componentize({
    sourcePath,
    witPath: wit,
    worldName: ["with", ...offered].join("-"),
    disableFeatures: [...unused, "fetch-event"],
  });
  await writeFile(output, component);
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
