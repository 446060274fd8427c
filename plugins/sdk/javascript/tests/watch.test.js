// What `bulkhead plugin build` says of a module that does at its top what only a call can. Here in another engine.

import assert from "node:assert/strict";
import { test } from "node:test";
import vm from "node:vm";

import { watch } from "../../../tools/author/src/watch.mjs";

/** What a web engine has beside the language. */
const outside = () => ({
  crypto: { getRandomValues: (array) => array, randomUUID: () => "uuid" },
  performance: { now: () => 1 },
  fetch() {},
  setTimeout() {},
  setInterval() {},
});

/** Loads a module under the watch; gives back its globals, and what was said in the end. */
function load(source) {
  const globals = vm.createContext(outside());
  try {
    vm.runInContext(`(${watch})();\n${source}\nbulkheadBuild.end();`, globals, { filename: "plugin.js" });
    return { globals, said: "" };
  } catch ({ message, stack }) {
    return { globals, said: message, stack };
  }
}

const linesOfWatch = watch.toString().split("\n").length;

test("what has no answer at the build throws where it is called", () => {
  for (const [source, what] of [
    ["Math.random();", "`Math.random`"],
    ["crypto.getRandomValues(new Uint8Array(1));", "`crypto.getRandomValues`"],
    ["crypto.randomUUID();", "`crypto.randomUUID`"],
    ["performance.now();", "`performance.now`"],
    ["fetch('https://a.example');", "`fetch`"],
    ["setTimeout(() => {}, 1);", "`setTimeout`"],
    ["setInterval(() => {}, 1);", "`setInterval`"],
    ["bulkheadBuild.refuse('`get` of the host');", "`get` of the host"],
    // A package that tries, and takes something weaker.
    ["try { crypto.randomUUID() } catch {}", "`crypto.randomUUID`"],
  ]) {
    const { said, stack } = load(`\n${source}`);
    assert.equal(said, `${what} is called while the plugin is built, where it has no answer. Call it inside of a tool.`);
    assert.match(stack, new RegExp(`plugin\\.js:${linesOfWatch + 2}:\\d+`), "its own line");
  }
});

test("what is read once for all calls is noted with its place", () => {
  const notes = (source) => {
    const { said } = load(`\n${source}`);
    const found = said === "" ? [] : JSON.parse(said.replace("bulkhead-notes ", ""));
    for (const { stack } of found) assert.match(stack, new RegExp(`plugin\\.js:${linesOfWatch + 2}:\\d+`), "its own line");
    return found.map(({ what }) => what);
  };
  for (const [source, expected] of [
    ["Date.now();", ["`Date.now()`"]],
    ["const { now } = Date; now();", ["`Date.now()`"]],
    ["new Date();", ["`new Date()`"]],
    ["Date();", ["`Date()`"]],
    ["class Day extends Date {} new Day();", ["`new Date()`"]],
    // What is the same each time, or read in a call.
    ["new Date(2020, 1); new Date('2020-01-01'); Date.UTC(2020); Date.parse('2020-01-01');", []],
    ["function tool() { return [Date.now(), new Date(), Math.random()] }", []],
  ]) {
    assert.deepEqual(notes(source), expected, source);
  }
});

test("nothing of the watch is left in a component", () => {
  const kept = "const { random } = Math; const Day = Date; const isSame = () => Day.prototype === Date.prototype;";
  const { globals, said } = load(`${kept} function tool() { return [random(), Day.now(), isSame()] }`);
  assert.equal(said, "");
  const [random, now, isSame] = vm.runInContext("tool()", globals);
  assert.ok(random < 1 && now > 1 && isSame, "what a module kept works in a call");
  const code = vm.runInContext("[Date, Date.now, Math.random, performance.now, fetch].map(String).join()", globals);
  assert.ok(!code.includes("Reflect.apply"), code);
  assert.equal(vm.runInContext("typeof bulkheadBuild", globals), "undefined");
  assert.equal(vm.runInContext("new Date(2020, 1) instanceof Date", globals), true);
  const own = load("Math.random = () => 7; globalThis.Date = class extends Date {}; const Own = Date;");
  assert.equal(vm.runInContext("Math.random() === 7 && Date === Own", own.globals), true, "what a module puts there stays");
});
