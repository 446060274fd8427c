// Chromium, who is logged in, and what a page does that it must not do. Knows no page but that of the login.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

// Node looks for packages beside the file that imports them; these are elsewhere.
const require = createRequire(path.join(process.env.DASHBOARD_PACKAGES, "package.json"));
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

export const DESKTOP = { width: 1280, height: 800 };

export async function launch() {
  return chromium.launch({
    executablePath: process.env.DASHBOARD_CHROMIUM,
    // The sandbox of Chromium does not run as root.
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
}

/** A browser in front of one host. Each page that it opens is in a context of its own, as of another person. */
export class Viewers {
  #sessions = { nobody: undefined };

  constructor(browser, host) {
    Object.assign(this, { browser, host });
  }

  /** Opens an empty tab of somebody who is logged in, or of `nobody`. */
  async open(viewer, { viewport = DESKTOP, ...more } = {}) {
    assert.ok(viewer in this.#sessions, `${viewer} did not log in`);
    const storageState = this.#sessions[viewer];
    const context = await this.browser.newContext({ baseURL: this.host.dashboard, storageState, viewport, ...more });
    context.setDefaultTimeout(15_000);
    return context.newPage();
  }

  /** Opens a page of somebody. */
  async visit(viewer, place, options) {
    const page = await this.open(viewer, options);
    await page.goto(place);
    return page;
  }

  /** Opens pages one after the other, each viewer's in one tab, and looks at each. `placeOf` says where a page is. */
  async each(entries, placeOf, look, options) {
    const tabs = {};
    for (const entry of entries) {
      const page = (tabs[entry.viewer] ??= await this.open(entry.viewer, options));
      await page.goto(placeOf(entry));
      await look(page, entry);
    }
    await Promise.all(Object.values(tabs).map((page) => page.context().close()));
  }

  /** Logs in with a token, in a tab that stays; further tabs of this name are of the same session. */
  async logIn(viewer, token) {
    const page = await this.visit("nobody", "/login");
    await sendToken(page, token);
    assert.equal(new URL(page.url()).pathname, "/");
    this.#sessions[viewer] = await page.context().storageState();
    return page;
  }
}

/** Fills the form of the login. */
export async function sendToken(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForLoadState();
}

/** What a page must not do, as a list that grows while it does. */
export async function watch(context, origin) {
  const seen = [];
  const note = (what, detail) => seen.push(`${what}: ${String(detail).slice(0, 300)}`);
  context.on("dialog", async (dialog) => {
    note("dialog", dialog.message());
    await dialog.dismiss().catch(() => {});
  });
  context.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && url !== "data:,") note("request", url);
  });
  context.on("console", (message) => {
    // That a page says 404 or 409 is no fault of its own.
    const isStatus = message.text().startsWith("Failed to load resource: the server responded");
    if (["error", "warning"].includes(message.type()) && !isStatus) note("console", message.text());
  });
  context.on("weberror", (error) => note("error", error.error()));
  context.on("page", async (page) => {
    if (await page.opener()) note("window", page.url());
    page.on("download", (download) => note("download", download.url()));
  });
  await context.addInitScript(() => {
    addEventListener(
      "securitypolicyviolation",
      (event) => console.error(`violation of ${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`),
      true,
    );
  });
  return seen;
}

/** Waits until a page that has loaded has drawn itself, and has done what it does by itself. */
export async function settle(page) {
  await page.waitForLoadState("load");
  await page.locator("body").evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))),
  );
}

/** What WCAG 2.1 AA has against a page; `rules` are those to look at, if not all. */
export async function violations(page, rules) {
  const axe = new AxeBuilder({ page }).setLegacyMode(true);
  const chosen = rules ? axe.withRules(rules) : axe.withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]);
  const result = await chosen.analyze();
  const nodes = (violation) => violation.nodes.map((node) => `${node.target}: ${node.failureSummary}`).join("; ");
  return result.violations.map((violation) => `${violation.id}: ${nodes(violation)}`);
}
