// A hostile plugin gets nothing out of the pages that show what it says.
import assert from "node:assert/strict";

import { settle, watch } from "../browser.mjs";
import { HOSTILE_PAGES, placeOf, titleOf } from "../pages.mjs";
import { ADDRESS, TEXT } from "../payloads.mjs";
import { overflow } from "./access.mjs";

const SIZES = [{ width: 1280, height: 800 }, { width: 360, height: 700 }];
/** Pixels of the highest page: what a plugin says is cut. */
const HEIGHT_MAX = 60_000;
/** Characters that turn text around or that nobody sees. */
const UNSEEN = /[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;

/** What pages of the dashboard are made of. */
const ELEMENTS = `
  html head meta title link script body header nav main footer noscript
  h1 h2 h3 p blockquote pre div span section ol ul li dl dt dd table thead tbody tr th td caption
  a abbr code em strong q small time meter progress details summary
  form fieldset legend label input datalist select optgroup option textarea button output
  svg g title desc path polyline line rect circle text figure figcaption b live-part
`;

/** What in a page is not of ours. The one link that leads away is the one that a plugin may ask for. */
function foreignParts(page, allowed) {
  return page.evaluate(([allowed, elements]) => {
    const found = [];
    const ours = new Set(elements.trim().split(/\s+/));
    for (const element of document.querySelectorAll("*")) {
      if (!ours.has(element.localName)) found.push(`<${element.localName}>`);
      if (element.localName === "script" && !element.src) found.push("a script in the page");
      for (const { name, value } of element.attributes) {
        if (name.startsWith("on") || name === "style" || name === "srcdoc") found.push(`${name}=${value.slice(0, 80)}`);
        if (!["href", "src", "action", "formaction", "data", "poster"].includes(name)) continue;
        const url = new URL(value, location.href);
        const isOurs = url.origin === location.origin || value === "data:,";
        if (!isOurs && value !== allowed) found.push(`${name}=${value.slice(0, 80)}`);
      }
    }
    return found;
  }, [allowed, ELEMENTS]);
}

/** Where the head of a page is: it stands first, at the top, and as wide as the window. */
function head(page) {
  return page.evaluate(() => {
    const { x, y, width, height } = document.querySelector("header").getBoundingClientRect();
    const isFirst = document.querySelector("header").compareDocumentPosition(document.querySelector("main"));
    const style = getComputedStyle(document.body);
    return {
      x, y, width, height,
      isFirst: Boolean(isFirst & Node.DOCUMENT_POSITION_FOLLOWING),
      direction: style.direction,
      display: style.display,
      pageHeight: document.documentElement.scrollHeight,
    };
  });
}

/** The head of a page in windows of each size, and what is wider than the window. */
async function headsOf(page) {
  const heads = [];
  for (const viewport of SIZES) {
    await page.setViewportSize(viewport);
    heads.push({ ...(await head(page)), tooWide: await overflow(page) });
  }
  return heads;
}

/** Whether nothing moved that is on every page. */
function holds(heads, usually, title) {
  for (const [number, { height, pageHeight, ...others }] of heads.entries()) {
    const { height: usualHeight, pageHeight: _, ...expected } = usually[number];
    const at = `${title} at ${SIZES[number].width} pixels`;
    assert.deepEqual(others, { ...expected, tooWide: [] }, at);
    // The name of the page that is shown is bold, and may need a line more.
    assert.ok(height <= 1.5 * usualHeight, `${at}: its head is ${height} pixels high in place of ${usualHeight}`);
    assert.ok(pageHeight < HEIGHT_MAX, `${at} is ${pageHeight} pixels high`);
  }
}

export async function hostile(report, world) {
  const { host, viewers } = world;

  // What would be seen if a page wrote it without care: else the checks below could not fail.
  await report.check("hostile: a careless page does all of it, and each is noticed", async () => {
    for (const policy of ["", (await fetch(`${host.dashboard}/login`)).headers.get("content-security-policy")]) {
      const page = await viewers.open("nobody");
      const seen = await watch(page.context(), host.dashboard);
      const headers = policy ? { "content-security-policy": policy } : {};
      const body = `<!DOCTYPE html><header></header><main><h1>${TEXT}</h1></main>`;
      await page.route("**/careless", (route) => route.fulfill({ contentType: "text/html", headers, body }));
      await page.route("https://evil.example/**", (route) => route.abort());
      await page.goto("/careless").catch(() => {});
      await settle(page).catch(() => {});
      const all = seen.join("\n");
      if (policy) {
        assert.match(all, /console: violation of/, "the policy reports");
        assert.doesNotMatch(all, /^dialog/m, "the policy stops scripts");
      } else {
        assert.match(all, /^dialog: script/m);
        assert.match(all, /^request: https:\/\/evil\.example\//m);
      }
      await page.context().close();
    }
  });

  // Each page is opened once for all of this.
  for (const viewer of new Set(HOSTILE_PAGES.map((entry) => entry.viewer))) {
    await report.check(`hostile: on pages of ${viewer} nothing runs, is loaded, leads away or is reported, and the layout holds`, async () => {
      const usual = await viewers.visit(viewer, "/nothing");
      const usually = await headsOf(usual);
      await usual.context().close();
      for (const entry of HOSTILE_PAGES.filter((entry) => entry.viewer === viewer)) {
        const page = await viewers.open(viewer);
        const seen = await watch(page.context(), host.dashboard);
        const place = placeOf(entry, world);
        const answer = await page.goto(place);
        await settle(page);
        const title = titleOf(entry);
        assert.equal(answer.status(), 200, title);
        assert.match(await page.getByRole("heading", { level: 1 }).innerText(), new RegExp(entry.heading), title);
        assert.equal(page.url(), new URL(place, host.dashboard).href, title);
        assert.deepEqual(await foreignParts(page, ADDRESS), [], title);
        assert.doesNotMatch(await page.locator("body").innerText(), UNSEEN, title);
        holds(await headsOf(page), usually, title);
        assert.deepEqual(seen, [], title);
        await page.context().close();
      }
    });
  }

  await report.check("hostile: what it says is there, as text", async () => {
    const say = await viewers.visit("mallory", `/tasks/${world.hostile.said}`);
    assert.match(await say.locator("main").innerText(), /<script>alert\('script'\)<\/script>/);
    const ask = await viewers.visit("mallory", `/tasks/${world.hostile.asking}`);
    assert.match(await ask.locator("blockquote").innerText(), /<script>alert\('script'\)<\/script>/);
    await ask.getByText("The text above is the plugin's").waitFor();
    const list = await viewers.visit("operator", "/tasks?tenant=dark");
    assert.match(await list.locator("table").innerText(), /<\/title><\/textarea>/);
    const plugin = await viewers.visit("operator", "/plugins/markup");
    // The list has the begin of a long source, the page of the version all of it.
    assert.match(await plugin.locator("main").innerText(), /"><img …/);
    await plugin.locator('main a[href$="/changes"]').first().click();
    await plugin.waitForURL(/\/changes$/);
    assert.match(await plugin.locator("main").innerText(), /<img src=x onerror=alert\('file'\)>/);
  });

  await report.check("hostile: its form can still be sent and declined", async () => {
    const page = await viewers.visit("mallory", `/tasks/${world.hostile.asking}`);
    const seen = await watch(page.context(), host.dashboard);
    await page.getByRole("button", { name: "Send the answer" }).click();
    await settle(page);
    assert.deepEqual(await foreignParts(page, ADDRESS), []);
    assert.deepEqual(seen, []);
  });
}
