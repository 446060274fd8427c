// Views of MCP Apps in Chromium: the sample `chart` twice in one host, without a prefix and under one, and alone under one, with
// clients of both eras. Prints a line for each check.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

import { Host } from "../dashboard/host.mjs";

const require = createRequire(path.join(process.env.APPS_PACKAGES, "package.json"));
const { chromium } = require("playwright-core");
const { build } = require("esbuild");

const EXTENSION = "io.modelcontextprotocol/ui";
const RAIN = { title: "Rain", values: [0, 3, 6, 0] };
const SNOW = { title: "Snow", values: [9, 0, 0, 9] };

/** A server of one page with one script, on an origin of its own. */
async function serve(script) {
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? script : '<!doctype html><meta charset="utf-8"><script type="module" src="/page.js"></script>');
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}

async function bundle() {
  const folder = await mkdtemp(path.join(tmpdir(), "apps-"));
  const outfile = path.join(folder, "page.js");
  try {
    await build({
      entryPoints: [path.join(import.meta.dirname, "page.mjs")],
      nodePaths: [path.join(process.env.APPS_PACKAGES, "node_modules")],
      bundle: true,
      format: "esm",
      platform: "browser",
      outfile,
    });
    return await readFile(outfile, "utf8");
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** A host with the sample under these names and prefixes, whose clients may be on this origin. */
async function hostWith(prefixes, origin) {
  const plugins = Object.entries(prefixes).map(([name, prefix]) => ({
    name,
    toml: () => `prefix = ${JSON.stringify(prefix)}\n`,
    guest: "chart",
  }));
  return Host.start({ plugins, sections: `[server]\nallowed_origins = [${JSON.stringify(origin)}]\n` });
}

let passed = 0;
let failed = 0;
async function check(name, run) {
  try {
    await run();
    passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`not ok ${name}: ${error.stack ?? error}`);
  }
}

/** The view of a frame, once it shows this. */
async function shows(page, number, title, about) {
  const view = page.frameLocator("iframe").nth(number);
  await view.locator("#title", { hasText: title }).waitFor();
  await view.locator("#about", { hasText: about }).waitFor();
  return view;
}

/** Shows the views of these tools, all at once, has each call its plugin, and looks that each has its own values. */
async function useViews(page, tools, smooth) {
  const inputs = [RAIN, SNOW].slice(0, tools.length);
  for (const [at, tool] of tools.entries()) {
    assert.equal(await page.evaluate(([tool, input]) => globalThis.show(tool, input), [tool, inputs[at]]), at);
  }
  const abouts = ["From 0 to 6, 4 values.", "From 0 to 9, 4 values."];
  const smoothed = ["From 1.5 to 3, 4 values.", "From 3 to 4.5, 4 values."];
  for (const [at, { title }] of inputs.entries()) {
    const view = await shows(page, at, title, abouts[at]);
    assert.equal((await page.evaluate((at) => globalThis.seen(at), at)).sizes > 0, true, "it says its size");
    await view.locator("#smooth").click();
    await shows(page, at, title, smoothed[at]);
    assert.deepEqual((await page.evaluate((at) => globalThis.seen(at), at)).called, [smooth]);
  }
  await shows(page, 0, inputs[0].title, smoothed[0]);
}

const script = await bundle();
const { server, origin } = await serve(script);
const browser = await chromium.launch({
  executablePath: process.env.APPS_CHROMIUM,
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});
try {
  for (const [what, prefixes, tools] of [
    ["two views, one of them under a prefix", { chart: "", again: "d_" }, ["chart", "d_chart"]],
    ["a view under a prefix", { chart: "c_" }, ["c_chart"]],
  ]) {
    const host = await hostWith(prefixes, origin);
    try {
      for (const era of ["legacy", "modern"]) {
        await check(`${era}: ${what}`, async () => {
          const page = await browser.newPage();
          page.setDefaultTimeout(15_000);
          await page.goto(origin);
          const { extensions, tools: listed } = await page.evaluate(([url, era]) => globalThis.connect(url, era), [host.url, era]);
          assert.deepEqual(extensions?.[EXTENSION], {});
          for (const tool of tools) {
            const prefix = tool.slice(0, -"chart".length);
            const found = listed.find(({ name }) => name === tool);
            assert.deepEqual(found, { name: tool, view: `ui://${prefix}chart/view.html`, forViews: false });
            assert.equal(listed.find(({ name }) => name === `${prefix}smooth`).forViews, true);
          }
          // The page knows the tool by its own name, whatever stands in front.
          await useViews(page, tools, "smooth");
          await page.close();
        });
      }
    } finally {
      await host.stop();
    }
  }
} finally {
  await browser.close();
  server.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
