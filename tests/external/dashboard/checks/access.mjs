// Whether everybody can use the pages: by keyboard, on a small screen, in both schemes, without script, by WCAG 2.1 AA.
import assert from "node:assert/strict";

import { DESKTOP, settle, violations } from "../browser.mjs";
import { ONE_OF_EACH_KIND, PAGES, placeOf, titleOf } from "../pages.mjs";
import { FORM } from "../world.mjs";
import { answerShown, fill, isSent, shows } from "./tasks.mjs";

/** Tabs until a page must have no further place to stop. */
const STOPS_MAX = 400;
/** A small telephone, and the narrowest screen that WCAG 2.1 asks for (1.4.10, reflow). */
const NARROW = [360, 320];
const HOUR = { ms: 3_600_000 };

/** The pages that are opened in every way. */
function pagesOf(world) {
  return world.everyWay ? PAGES : ONE_OF_EACH_KIND;
}

function eachPage(world, pages, look, options) {
  return world.viewers.each(pages, (entry) => placeOf(entry, world), look, options);
}

/** Elements that a keyboard must reach, as places in the order of the page. */
export function reachable(page) {
  return page.evaluate(() => {
    const selector = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
    const all = [...document.querySelectorAll("*")];
    const usable = (element) => element.checkVisibility() && !element.disabled;
    return all.flatMap((element, place) => (element.matches(selector) && usable(element) ? [place] : []));
  });
}

/** Presses Tab through a whole page: what has the focus, one after the other. */
export async function tabThrough(page) {
  const stops = [];
  while (stops.length < STOPS_MAX) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      const style = getComputedStyle(element);
      const { left, top, width, height } = element.getBoundingClientRect();
      return {
        place: [...document.querySelectorAll("*")].indexOf(element),
        text: element.outerHTML.slice(0, 120),
        isOutlined: style.outlineStyle !== "none" && Number.parseFloat(style.outlineWidth) >= 2,
        isInView: left >= 0 && left < innerWidth && top + height > 0 && top < innerHeight && width > 0,
      };
    });
    if (!stop || (stops.length > 1 && stop.place === stops[0].place)) return stops;
    // A field for a date has more than one place to stop.
    if (stops.at(-1)?.place !== stop.place) stops.push(stop);
  }
  throw new Error(`${STOPS_MAX} stops, and no end`);
}

/** Presses Tab until an element has the focus. */
async function tabTo(page, locator) {
  for (let stop = 0; stop < STOPS_MAX; stop += 1) {
    await page.keyboard.press("Tab");
    if (await locator.evaluate((element) => element === document.activeElement)) return;
  }
  throw new Error(`${locator} cannot be reached by Tab`);
}

async function tabAndPress(page, locator, key = "Enter") {
  await tabTo(page, locator);
  await page.keyboard.press(key);
}

async function keyboard(report, world) {
  const { viewers, clients, tokens } = world;

  await report.check("keyboard: Tab reaches everything on a page, in its order and visibly", async () => {
    await eachPage(world, pagesOf(world), async (page, entry) => {
      // A page that changes meanwhile would be counted twice.
      await page.context().setOffline(true);
      const expected = await reachable(page);
      const stops = await tabThrough(page);
      const places = stops.map((stop) => stop.place);
      const title = titleOf(entry);
      assert.match(stops[0].text, /class="skip"/, `${title} begins with the link to its contents`);
      assert.deepEqual(places, places.toSorted((one, other) => one - other), `${title}: the order of Tab`);
      const missed = expected.filter((place) => !places.includes(place));
      assert.deepEqual(missed, [], `${title}: elements that Tab does not reach`);
      for (const stop of stops) assert.ok(stop.isOutlined && stop.isInView, `${title}: no focus is seen on ${stop.text}`);
      await page.context().setOffline(false);
    });
  });

  await report.check("keyboard: the first link skips what all pages have in common", async () => {
    const page = await viewers.visit("operator", "/tasks");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Tab");
    assert.ok(await page.evaluate(() => document.querySelector("main").contains(document.activeElement)));
  });

  await report.check("keyboard: it logs in, opens a task, pauses, resumes and cancels it", async () => {
    const id = await clients.ben.taskUntil("working", "wait", HOUR);
    const page = await viewers.visit("nobody", "/login");
    await tabTo(page, page.getByLabel("Token"));
    await page.keyboard.type(tokens.ben.token);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "My tasks" }).waitFor();
    await tabAndPress(page, page.locator(`a[href="/tasks/${id}"]`));
    await tabAndPress(page, page.getByRole("button", { name: "Pause" }));
    await shows(page, "paused");
    await tabAndPress(page, page.getByRole("button", { name: "Resume" }), "Space");
    await shows(page, "running");
    await tabAndPress(page, page.getByRole("button", { name: "Cancel the task" }));
    await shows(page, "cancelled");
    await tabAndPress(page, page.locator("summary", { hasText: "Delete…" }));
    await tabAndPress(page, page.getByRole("button", { name: "Delete the task" }));
    await page.waitForURL(/\/tasks$/);
  });

  await report.check("keyboard: it answers a form", async () => {
    // In the order of their names, as the plugin passes them on.
    const schema = {
      type: "object",
      properties: {
        class: { type: "string", title: "Class", enum: ["economy", "business"] },
        count: { type: "integer", title: "Count" },
        extras: { type: "array", title: "Extras", items: { type: "string", enum: ["bike", "dog"] } },
        name: { type: "string", title: "Name" },
        sure: { type: "boolean", title: "Sure" },
      },
      required: ["name", "class"],
    };
    const id = await clients.anna.taskUntil("input_required", "ask_form", { message: "Which journey?", schema });
    const page = await viewers.visit("anna", `/tasks/${id}`);
    await tabTo(page, page.getByLabel("Class"));
    await page.keyboard.type("bus");
    await page.keyboard.press("Tab");
    await page.keyboard.type("3");
    await tabAndPress(page, page.getByLabel("dog"), "Space");
    await page.keyboard.press("Tab");
    await page.keyboard.type("Ada");
    await tabAndPress(page, page.getByLabel("Sure"), "Space");
    await tabAndPress(page, page.getByRole("button", { name: "Send the answer" }));
    await isSent(page);
    await clients.anna.until(id, "completed");
    await page.goto(`/tasks/${id}`);
    const answer = { class: "business", count: 3, extras: ["dog"], name: "Ada", sure: true };
    assert.deepEqual(await answerShown(page), answer);
  });
}

/** What is wider than the window, if the page can be scrolled sideways. */
export function overflow(page) {
  return page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const isOut = (element) => element.getBoundingClientRect().right > clientWidth + 1;
    return [...document.querySelectorAll("body *")].filter(isOut).map((element) => element.outerHTML.slice(0, 100));
  });
}

/** What has to be moved sideways to be read, of what is shown. */
function movedSideways(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll(".scroll")]
      .filter((part) => part.checkVisibility() && part.scrollWidth > part.clientWidth + 1)
      .map((part) => part.getAttribute("aria-label")));
}

/** Values that are bytes or milliseconds as a machine counts them; the id of a process is as it is. */
function bareNumbers(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll("td, dd")]
      .filter((cell) => cell.previousElementSibling?.textContent !== "Process")
      .map((cell) => cell.textContent.trim())
      .filter((text) => /^\d{5,}$/.test(text)));
}

async function layout(report, world) {
  await report.check("layout: on a small screen a task can be paused and a question answered", async () => {
    const { viewers, clients } = world;
    const small = { viewport: { width: 360, height: 640 }, hasTouch: true };
    const id = await clients.anna.taskUntil("input_required", "ask_form", { message: "Which journey?", schema: FORM });
    const page = await viewers.visit("anna", `/tasks/${id}`, small);
    const expected = await fill(page);
    await page.getByRole("button", { name: "Send the answer" }).tap();
    await isSent(page);
    await clients.anna.until(id, "completed");
    await page.goto(`/tasks/${id}`);
    assert.deepEqual(await answerShown(page), expected);
    const running = await clients.anna.taskUntil("working", "wait", HOUR);
    await page.goto(`/tasks/${running}`);
    await page.getByRole("button", { name: "Pause" }).tap();
    await shows(page, "paused");
    await page.getByRole("button", { name: "Cancel the task" }).tap();
    await shows(page, "cancelled");
  });
}

/** How bright the ground of a page is, from 0 to 255. */
function brightness(page) {
  return page.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (red + green + blue) / 3;
  });
}

/** What WCAG has against a page in these colour schemes. */
async function violationsOf(page, entry, schemes) {
  const found = [];
  for (const colorScheme of schemes) {
    await page.emulateMedia({ colorScheme });
    await settle(page);
    const bright = await brightness(page);
    assert.ok(colorScheme === "light" ? bright > 230 : bright < 40, `${titleOf(entry)} is not ${colorScheme}`);
    // What the second scheme changes is colours.
    const rules = colorScheme === "light" ? undefined : ["color-contrast", "link-in-text-block"];
    const violated = await violations(page, rules);
    found.push(...violated.map((violation) => `${titleOf(entry)}, ${colorScheme}: ${violation}`));
  }
  return found;
}

/** Looks also whether tables are cards on a telephone, and whether numbers have units. Leaves the page as it was. */
async function isNamedAndFits(page, entry) {
  assert.match(await page.getByRole("heading", { level: 1 }).innerText(), new RegExp(entry.heading), titleOf(entry));
  for (const width of NARROW) {
    await page.setViewportSize({ width, height: 700 });
    assert.deepEqual(await overflow(page), [], `${titleOf(entry)} at ${width}`);
    if (width === NARROW[0]) assert.deepEqual(await movedSideways(page), [], `${titleOf(entry)} at ${width}: tables`);
  }
  assert.deepEqual(await bareNumbers(page), [], `${titleOf(entry)}: numbers without a unit`);
  await page.setViewportSize(DESKTOP);
}

async function schemes(report, world) {
  // Each page is opened once for all of this.
  for (const viewer of new Set(PAGES.map((page) => page.viewer))) {
    const what = `violates WCAG 2.1 AA, or is wider than a screen of ${NARROW.join(" or ")} pixels`;
    await report.check(`accessibility: no page of ${viewer} ${what}`, async () => {
      const found = [];
      const pages = PAGES.filter((page) => page.viewer === viewer);
      await eachPage(world, pages, async (page, entry) => {
        found.push(...(await violationsOf(page, entry, pagesOf(world).includes(entry) ? ["light", "dark"] : ["light"])));
        await isNamedAndFits(page, entry);
      });
      assert.deepEqual(found, []);
    });
  }

  await report.check("layout: what is moved sideways and a number without a unit are noticed on a careless page", async () => {
    const page = await world.viewers.open("nobody", { viewport: { width: 360, height: 640 } });
    await page.setContent(`<div class="scroll" aria-label="wide" style="overflow-x: auto"><table><tr><td>67108864</td>
      <td style="white-space: nowrap">${"a long value ".repeat(20)}</td></tr></table></div><dl><dt>Process</dt><dd>12345</dd></dl>`);
    assert.deepEqual(await movedSideways(page), ["wide"]);
    assert.deepEqual(await bareNumbers(page), ["67108864"]);
  });

  await report.check("accessibility: WCAG has something against a careless page", async () => {
    const page = await world.viewers.open("nobody");
    await page.setContent("<h1></h1><img src='data:,'><input><p style='color: #ccc; background: #fff'>quiet</p>");
    const found = (await violations(page)).join(" ");
    for (const rule of ["image-alt", "label", "color-contrast"]) assert.match(found, new RegExp(rule));
  });
}

async function withoutScript(report, world) {
  const { host, viewers, clients } = world;
  const off = { javaScriptEnabled: false, viewport: DESKTOP };

  await report.check("no script: a page is there", async () => {
    const look = (page, { heading }) =>
      page.getByRole("heading", { level: 1 }).filter({ hasText: new RegExp(heading) }).waitFor();
    await eachPage(world, pagesOf(world), look, off);
  });

  await report.check("no script: an operator logs in by a link, pauses and resumes a task", async () => {
    const id = await clients.anna.taskUntil("working", "wait", HOUR);
    const page = await viewers.visit("nobody", await host.link(), off);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.goto(`/tasks/${id}`);
    await page.getByRole("button", { name: "Pause" }).click();
    await shows(page, "paused");
    await page.getByRole("button", { name: "Resume" }).click();
    await shows(page, "running");
    await page.getByRole("button", { name: "Cancel the task" }).click();
    await shows(page, "cancelled");
  });

  await report.check("no script: a requestor answers a form", async () => {
    const id = await clients.anna.taskUntil("input_required", "ask_form", { message: "Which journey?", schema: FORM });
    const page = await viewers.visit("anna", `/tasks/${id}`, off);
    const expected = await fill(page);
    await page.getByRole("button", { name: "Send the answer" }).click();
    await isSent(page);
    await clients.anna.until(id, "completed");
    await page.goto(`/tasks/${id}`);
    assert.deepEqual(await answerShown(page), expected);
  });
}

export async function access(report, world) {
  await keyboard(report, world);
  await layout(report, world);
  await schemes(report, world);
  await withoutScript(report, world);
}
