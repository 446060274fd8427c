// Counts the checks of a run of the conformance suite, scenario by scenario: a warning is a failure here, and so is a scenario
// without any check. What the suite skips is said, with its reason.
//
//   node count.mjs FOLDER

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

// The suite's author has left these without a check; see the reason that is printed.
const empty = new Set(["tasks-status-notifications"]);

const folder = process.argv[2];
let passed = 0;
const failures = [];
for (const scenario of readdirSync(folder).sort()) {
  const name = scenario.replace(/^server-/, "").replace(/-\d{4}-\d{2}-\d{2}T.*$/, "");
  const checks = JSON.parse(readFileSync(join(folder, scenario, "checks.json"), "utf8"));
  const good = checks.filter((check) => check.status === "SUCCESS");
  passed += good.length;
  const bad = checks.filter((check) => check.status === "FAILURE" || check.status === "WARNING");
  failures.push(...bad.map((check) => `${name}: ${check.id}: ${check.errorMessage ?? check.description}`));
  const skipped = checks.filter((check) => check.status === "SKIPPED");
  for (const check of skipped) {
    console.log(`NOT RUN ${name}: ${check.id}: ${check.errorMessage ?? check.description}`);
  }
  if (good.length + bad.length === 0 && !(skipped.length > 0 && empty.has(name))) {
    failures.push(`${name}: no check was made`);
  }
}
for (const failure of failures) {
  console.log(`FAILED ${failure}`);
}
console.log(`${passed} passed, ${failures.length} failed`);
process.exit(failures.length === 0 && passed > 0 ? 0 : 1);
