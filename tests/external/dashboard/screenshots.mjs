// The pictures of the documents: eight pages of a host that several tenants use; and each as it is wide and narrow, light and dark.
import assert from "node:assert/strict";
import { mkdir, stat, writeFile } from "node:fs/promises";
import path from "node:path";

import { DESKTOP, Viewers, settle } from "./browser.mjs";
import { Client, Host, component, emptied, variant } from "./host.mjs";
import { Components } from "./servers.mjs";

const FOLDER = path.resolve(import.meta.dirname, "../../../host/docs/images");
const BYTES_MAX = 150 * 1024;
/** The lowest picture; a page that needs less is not shown with more. */
const HEIGHT_MIN = 360;
const PHONE = { width: 360, height: 740 };
const LOAD_MS = 20_000;
/** Words of a component, and others of the same length: further versions of it. */
const CSV_WORDS = [
  "Profiles a CSV file with a header row",
  "Profiles CSV files that have a header",
  "Profiles every CSV file with a header",
];

const PLUGINS = [{ name: "text" }, { name: "desk" }, { name: "primes" }];
const PEOPLE = { acme: ["anna", "ben"], globex: ["carla"], initech: ["dora", "emil"], umbrella: ["fay"] };

const SECTIONS = `
[tenant.acme]
cpu_weight = 2
limits = { tasks_stored_per_tenant = 60, tasks_waiting_per_tenant = 12 }
[tenant.globex.limits]
tasks_waiting_per_requestor = 8
tasks_stored_per_requestor = 60
tasks_stored_per_tenant = 80
[tenant.initech.limits]
tasks_stored_per_tenant = 40
[tenant.umbrella.limits]
tasks_stored_per_tenant = 20
`;

// Nobody has signed what is made here.
const TRUST = `
[[trust]]
source = "**"
unsigned = true
`;

function grantLists(host) {
  const folder = JSON.stringify(host.file("lists"));
  return `[plugin.grants]\ndirectories = [{ host = ${folder}, guest = "/data", write = false }]\n`;
}

/** Writes every picture; `everyWay`: also of each page in every way that people see it in, into a folder below `target`. */
export async function takePictures(browser, { everyWay }) {
  // From an address: a path of this machine is of no interest to readers.
  const components = await Components.start();
  const csv = { name: "csv", url: components.add("csv-1.2.wasm", component("csv")), toml: grantLists };
  const sections = `${Components.section}${SECTIONS}${TRUST}`;
  const host = await Host.start({ plugins: [...PLUGINS, csv], sections, prepare: makeLists });
  try {
    await addVersions(host, components);
    const viewers = new Viewers(browser, host);
    const clients = await connect(host, viewers);
    const asking = await work(host, clients);
    await load(clients);
    const folder = everyWay ? await emptied("pictures") : undefined;
    for (const [viewer, place, name] of [
      ["operator", "/", "overview"],
      ["anna", `/tasks/${asking}`, "task"],
      ["anna", "/tasks", "my-tasks"],
      ["operator", "/plugins/csv", "plugin"],
      ["operator", "/tenants", "tenants"],
      ["operator", "/tasks", "tasks"],
      ["anna", "/tools/csv_profile", "tool"],
      ["operator", "/audit?event=plugin.", "audit"],
    ]) {
      await picture(viewers, viewer, place, name);
      if (folder !== undefined) await inEveryWay(viewers, viewer, place, path.join(folder, name));
    }
  } finally {
    await host.stop();
    components.stop();
  }
}

async function makeLists(host) {
  const rows = Array.from({ length: 5_000 }, (_, row) => `city ${row},PT,${row * 37}\n`);
  await mkdir(host.file("lists"));
  await writeFile(host.file("lists/cities.csv"), `city,country,inhabitants\n${rows.join("")}`);
}

/** Gives a plugin a history: a version that was, one that is, and one that one tenant and a tenth of the others have. */
async function addVersions(host, components) {
  const [first, ...others] = CSV_WORDS;
  const make = async (words, place) => {
    const name = `csv-1.${place + 3}.wasm`;
    return components.add(name, await variant("csv", first, words, host.file(name)));
  };
  const [next, newest] = await Promise.all(others.map(make));
  await host.command("plugin", "add", next, "--name", "csv", "--accept");
  await host.command("plugin", "stage", newest, "--name", "csv");
  const { versions } = await host.command("plugin", "versions", "csv");
  const staged = versions.find((version) => ["staged", "checked"].includes(version.state));
  await host.command("plugin", "activate", `csv@${staged.version}`, "--canary", "10%", "--tenant", "globex", "--accept");
}

async function connect(host, viewers) {
  const clients = {};
  for (const [tenant, names] of Object.entries(PEOPLE)) {
    for (const name of names) {
      const { token } = await host.token(name, tenant);
      await viewers.logIn(name, token);
      clients[name] = await Client.connect(host, token);
    }
  }
  await viewers.logIn("operator", host.adminToken);
  await Promise.all(viewers.browser.contexts().map((context) => context.close()));
  return clients;
}

/** Starts what the pages show; the id of a task that asks. */
async function work(host, clients) {
  const { anna, ben, carla, dora, emil, fay } = clients;
  const hour = { ms: 3_600_000 };
  const profile = { path: "/data/cities.csv" };
  for (const [client, count] of [[anna, 4], [ben, 12], [carla, 45], [dora, 20], [emil, 6], [fay, 9]]) {
    for (let number = 0; number < count; number += 1) await client.taskUntil("completed", "csv_profile", profile);
  }
  await anna.taskUntil("failed", "csv_profile", { path: "/data/villages.csv" });
  await anna.taskUntil("completed", "count_primes", { below: 2_000_000 });
  const cancelled = await anna.taskUntil("working", "wait", hour);
  await anna.cancel(cancelled);
  const paused = await anna.taskUntil("working", "wait", hour);
  await host.command("tasks", "pause", paused, "--message", "The list is being replaced");
  for (const [client, count] of [[ben, 2], [carla, 7], [dora, 1], [fay, 3]]) {
    for (let number = 0; number < count; number += 1) await client.taskUntil("working", "wait", hour);
  }
  await carla.taskUntil("input_required", "book_trip");
  await emil.taskUntil("input_required", "book_trip");
  await anna.taskUntil("working", "count_primes", { below: 900_000_000_000 });
  return anna.taskUntil("input_required", "book_trip");
}

/** Calls of everybody for a while, so that rates and charts have something to show. */
async function load(clients) {
  const end = Date.now() + LOAD_MS;
  const calls = Object.values(clients).map(async (client, place) => {
    while (Date.now() < end) {
      await client.request("tools/call", { name: "word_count", arguments: { text: "one two three ".repeat(200) } });
      await new Promise((done) => setTimeout(done, 20 * (place + 1)));
    }
  });
  await Promise.all(calls);
}

/** The whole page at both widths and in both schemes. */
async function inEveryWay(viewers, viewer, place, file) {
  for (const viewport of [DESKTOP, PHONE]) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await viewers.visit(viewer, place, { viewport, colorScheme });
      await settle(page);
      await page.screenshot({ path: `${file}-${viewport.width}-${colorScheme}.png`, fullPage: true });
      await page.context().close();
    }
  }
}

async function picture(viewers, viewer, place, name) {
  const page = await viewers.visit(viewer, place, { colorScheme: "light" });
  await settle(page);
  const bottom = await page.locator("main").evaluate((main) => Math.ceil(main.getBoundingClientRect().bottom));
  const height = Math.min(DESKTOP.height, Math.max(HEIGHT_MIN, bottom));
  const file = path.join(FOLDER, `dashboard-${name}.png`);
  await mkdir(FOLDER, { recursive: true });
  assert.doesNotMatch(await page.locator("body").innerText(), /\/(tmp|home|root|var|work)\//, `${place} shows a path`);
  await page.screenshot({ path: file, clip: { x: 0, y: 0, width: DESKTOP.width, height } });
  const { size } = await stat(file);
  assert.ok(size <= BYTES_MAX, `${file} has ${size} bytes; ${BYTES_MAX} is the most`);
  console.log(`${path.relative(process.cwd(), file)}: ${size} bytes`);
  await page.context().close();
}
