// main.mjs [--every-way] [--only WORD] [--screenshots]; see `run`.
import { parseArgs } from "node:util";

import { Viewers, launch } from "./browser.mjs";
import { access } from "./checks/access.mjs";
import { apps } from "./checks/apps.mjs";
import * as features from "./checks/features.mjs";
import { hostile } from "./checks/hostile.mjs";
import { live } from "./checks/live.mjs";
import { login } from "./checks/login.mjs";
import { tasks } from "./checks/tasks.mjs";
import { Host, emptied } from "./host.mjs";
import { Report } from "./report.mjs";
import { Issuer } from "./servers.mjs";
import { takePictures } from "./screenshots.mjs";
import { PLUGINS, SECTIONS, makeWorld } from "./world.mjs";

const { values: options } = parseArgs({
  options: { "every-way": { type: "boolean" }, only: { type: "string" }, screenshots: { type: "boolean" } },
});

const began = performance.now();
const browser = await launch();
let host;
let issuer;
try {
  if (options.screenshots) {
    await takePictures(browser, { everyWay: options["every-way"] ?? false });
  } else {
    issuer = await Issuer.start();
    host = await Host.start({ plugins: PLUGINS, sections: `${issuer.section}${SECTIONS}` });
    await runChecks();
  }
} finally {
  await browser.close();
  await host?.stop();
  issuer?.stop();
}

async function runChecks() {
  const report = new Report(browser, { only: options.only, folder: await emptied("failed") });
  const world = await makeWorld(host, new Viewers(browser, host), issuer);
  world.everyWay = options["every-way"] ?? false;
  await Promise.all(browser.contexts().map((context) => context.close()));
  for (const checks of [login, tasks, access, hostile, live, apps, ...Object.values(features)]) await checks(report, world);
  report.note(`${Math.round((performance.now() - began) / 1_000)} s with ${browser.version()}`);
  console.log(`${report.passed} passed, ${report.failed} failed`);
  if (report.failed > 0 || report.passed === 0) process.exitCode = 1;
}
