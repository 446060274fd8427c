// Counts the checks of a run of the conformance suite, scenario by scenario: a warning is a failure here, and so is a scenario
// without any check. What the suite skips is said, with its reason. With a revision or release, each of its scenarios in the file
// `scenarios` must have been run, and each of its checks in the file `expected-failures` must have failed.
//
//   node count.mjs FOLDER [REVISION [MODE]]
//
// With a mode, such as `cluster`, the checks of `REVISION+MODE` must have failed as well.

import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

// The suite's author has left these without a check; see the reason that is printed.
const empty = new Set(["tasks-status-notifications"]);

const [folder, revision, mode] = process.argv.slice(2);
const listed = (file, word = revision) => {
  const lines = readFileSync(join(dirname(fileURLToPath(import.meta.url)), file), "utf8").split("\n");
  return new Set(lines.filter((line) => line.startsWith(`${word} `)).map((line) => line.slice(word.length + 1)));
};
const missing = listed("scenarios");
const expected = new Set([...listed("expected-failures"), ...(mode ? listed("expected-failures", `${revision}+${mode}`) : [])]);
let passed = 0;
let excused = 0;
const failures = [];
for (const scenario of readdirSync(folder).sort()) {
  const name = scenario.replace(/^server-/, "").replace(/-\d{4}-\d{2}-\d{2}T.*$/, "");
  missing.delete(name);
  const checks = JSON.parse(readFileSync(join(folder, scenario, "checks.json"), "utf8"));
  const good = checks.filter((check) => check.status === "SUCCESS");
  passed += good.length;
  const failed = checks.filter((check) => check.status === "FAILURE" || check.status === "WARNING");
  const bad = failed.filter((check) => !expected.delete(`${name} ${check.id}`));
  for (const check of failed.filter((check) => !bad.includes(check))) {
    console.log(`EXPECTED ${name}: ${check.id}: ${check.errorMessage ?? check.description}`);
    excused += 1;
  }
  failures.push(...bad.map((check) => `${name}: ${check.id}: ${check.errorMessage ?? check.description}`));
  const skipped = checks.filter((check) => check.status === "SKIPPED");
  for (const check of skipped) {
    console.log(`NOT RUN ${name}: ${check.id}: ${check.errorMessage ?? check.description}`);
  }
  if (good.length + failed.length === 0 && !(skipped.length > 0 && empty.has(name))) {
    failures.push(`${name}: no check was made`);
  }
}
failures.push(...[...missing].map((name) => `${name}: it was not run`));
failures.push(...[...expected].map((name) => `${name}: it was expected to fail and does not: remove it from expected-failures`));
for (const failure of failures) {
  console.log(`FAILED ${failure}`);
}
console.log(`${passed} passed, ${failures.length} failed${excused > 0 ? `, ${excused} failed as expected` : ""}`);
process.exit(failures.length === 0 && passed > 0 ? 0 : 1);
