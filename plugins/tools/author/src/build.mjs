// Makes a component of a plugin: its bundle, then componentize-js with no more of the outside world than the bundle names. Stands behind
// bundle.mjs and watch.mjs in one module.

const OFFERS = ["tools", "resources", "prompts", "completions"];

/** What `watch` noted: read once, at the build. Nothing, if the engine said something else. */
function notes(said) {
  const json = /bulkhead-notes (\[.*\])/.exec(said)?.[1];
  return json && JSON.parse(json);
}

/** A line for each place outside of the SDK where something is read that stays as it is. */
function warnOfNotes(noted, placeOf) {
  const told = new Set();
  for (const { what, stack } of noted) {
    const place = placesIn(stack, placeOf).find(isOwn);
    if (!place) continue;
    const at = `${place.file}:${place.line}:${place.column}`;
    if (told.has(at)) continue;
    told.add(at);
    console.error(`warning: ${at}: ${what} is read while the plugin is built, and every call sees that value. Read it inside of the tool.`);
  }
}

// Twice: what the module exports is known when it is bundled, and the SDK compares that with what the plugin has.
const own = { entryPoints: [entry], conditions: ["bulkhead"], alias: { "bulkhead-plugin": sdk } };
const first = await bundle({ ...own, logLevel: "error" });
const [{ exports }] = Object.values(first.metafile.outputs).filter(({ entryPoint }) => entryPoint);
const offered = OFFERS.filter((name) => exports.includes(name));
if (!offered.includes("tools")) {
  fail(`${shown(entry)}: the plugin exports no tools: write \`export const { tools } = definePlugin({ tools: [...] })\``);
}
const { source, placeOf } = texts(await bundle({ ...own, define: { BULKHEAD_EXPORTS: JSON.stringify(offered) } }));
const sourcePath = join(scratch, "plugin.js");
const watcher = `(${watch})();\n`;
const watcherLines = watcher.split("\n").length - 1;
const unused = unusedFeatures(source);

/** Makes the component of this text of the bundle. */
async function make(text) {
  await writeFile(sourcePath, text);
  const { component } = await componentize({
    sourcePath,
    witPath: wit,
    worldName: ["with", ...offered].join("-"),
    disableFeatures: [...unused, "fetch-event"],
  });
  await writeFile(output, component);
}

try {
  await make(`${watcher}${source}\nbulkheadBuild.end();\n`);
} catch (error) {
  const watchedPlaceOf = (line, column) => placeOf(line - watcherLines, column);
  const noted = notes(error.message);
  if (!noted) fail(mistake(error.message, watchedPlaceOf));
  warnOfNotes(noted, watchedPlaceOf);
  await make(source);
}
warn(source, placeOf);
