// What `bulkhead plugin build` says of a module that needs what a component has not. Here in another engine, which has it no more.

import assert from "node:assert/strict";
import { test } from "node:test";
import vm from "node:vm";

import { lacking } from "../../../tools/author/src/lacking.mjs";

/** The error that leaves a module whose top is this, as the engine's own line says it. */
function errorOf(source) {
  try {
    vm.runInContext(source, vm.createContext({}), { filename: "plugin.js" });
  } catch (error) {
    return String(error);
  }
  throw new Error(`nothing is missing for ${source}`);
}

test("each global of Node.js at the top of a module is told with what to use instead", () => {
  for (const [source, what, instead] of [
    ["const key = process.env.KEY;", "process", /`config\.get` of the SDK/],
    ["process.argv.slice(2);", "process", /`config\.get` of the SDK/],
    ["process.exit(1);", "process", /`config\.get` of the SDK/],
    ["const magic = Buffer.from('magic');", "Buffer", /`Uint8Array` with `TextEncoder`/],
    ["new Buffer(8);", "Buffer", /`Uint8Array` with `TextEncoder`/],
    ["const words = __dirname + '/words.txt';", "__dirname", /`import` what it needs/],
    ["const own = __filename;", "__filename", /`import` what it needs/],
    ["global.counter = 0;", "global", /`globalThis`/],
    ["setImmediate(() => {});", "setImmediate", /`setTimeout`, inside of a tool/],
    ["clearImmediate(7);", "clearImmediate", /`clearTimeout`, inside of a tool/],
  ]) {
    const said = lacking(errorOf(source));
    assert.ok(said?.startsWith(`\`${what}\` of Node.js is not there in a component. `), `${source}: ${said}`);
    assert.match(said, instead, source);
  }
});

test("what the engine lacks is told with what to use instead, and nothing else is", () => {
  for (const [error, what] of [
    ["SyntaxError: invalid property name in regular expression", "`\\p{…}` in a regular expression"],
    ["ReferenceError: Intl is not defined", "`Intl`"],
    ["TypeError: text.normalize is not a function", "`String.prototype.normalize`"],
    ['Error: Dynamic require of "words" is not supported', "`require` of a name that is computed"],
  ]) {
    assert.ok(lacking(error)?.startsWith(`${what} is not there in a component. `), error);
  }
  // Names of the author's own, and texts that only speak of such a name.
  for (const source of ["processes.env;", "({}).process.env;", "throw new Error('process is not defined')", "missing();"]) {
    assert.equal(lacking(errorOf(source)), undefined, source);
  }
});
