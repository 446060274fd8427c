// Pages that change by themselves.
import assert from "node:assert/strict";

import { settle, watch } from "../browser.mjs";
import { TEXT } from "../payloads.mjs";

const HOUR = { ms: 3_600_000 };
/** What the design promises, and what only a broken page needs: a gate shares its machine. */
const OWN_MS = 300;
const LIST_MS = 1_500;
const FACTOR = 20;

/** Milliseconds from a change until a page shows it by itself. */
async function measured(page, change, shown) {
  await page.evaluate(() => (window.isSamePage = true));
  const began = performance.now();
  await change();
  await shown.waitFor({ timeout: FACTOR * LIST_MS });
  const ms = Math.round(performance.now() - began);
  assert.ok(await page.evaluate(() => window.isSamePage), "the page was loaded again");
  return ms;
}

/** Waits until a page says that it is live. */
async function isLive(page) {
  await page.getByText(/^\W*live\b/i).first().waitFor();
}

export async function live(report, world) {
  const { host, viewers, clients } = world;
  const { anna, mallory } = clients;
  const row = (page, id) => page.locator(`a[href="/tasks/${id}"]`).first();

  await report.check("live: a change of an own task is on its page", async () => {
    const id = await anna.taskUntil("working", "wait", HOUR);
    const page = await viewers.visit("anna", `/tasks/${id}`);
    await isLive(page);
    const shown = page.locator("main .status").first().filter({ hasText: "cancelled" });
    const ms = await measured(page, () => anna.cancel(id), shown);
    report.note(`live: an own task changed, ${ms} ms later its page showed it (design: ${OWN_MS})`);
    assert.ok(ms <= FACTOR * OWN_MS, `${ms} ms`);
    assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0, "its buttons changed as well");
  });

  for (const [viewer, place, bound] of [["anna", "/tasks", OWN_MS], ["operator", "/tasks?tenant=acme", LIST_MS]]) {
    await report.check(`live: a new task is on the list of ${viewer}`, async () => {
      const page = await viewers.visit(viewer, place);
      await isLive(page);
      let id;
      await page.evaluate(() => (window.isSamePage = true));
      const began = performance.now();
      id = await anna.task("wait", HOUR);
      await row(page, id).waitFor({ timeout: FACTOR * LIST_MS });
      const ms = Math.round(performance.now() - began);
      assert.ok(await page.evaluate(() => window.isSamePage), "the page was loaded again");
      report.note(`live: a new task was on the list of ${viewer} after ${ms} ms (design: ${bound})`);
      assert.ok(ms <= FACTOR * bound, `${ms} ms`);
      await anna.cancel(id);
    });
  }

  await report.check("live: what somebody fills in stays, and so does the focus", async () => {
    const schema = { type: "object", properties: { name: { type: "string", title: "Name" } } };
    const id = await anna.taskUntil("input_required", "ask_form", { message: "Who?", schema });
    const page = await viewers.visit("anna", `/tasks/${id}`);
    await isLive(page);
    await page.getByLabel("Name").pressSequentially("Ada Love");
    await host.command("tasks", "pause", id);
    await page.locator("main .status").first().filter({ hasText: "paused" }).waitFor();
    await page.keyboard.type("lace");
    assert.equal(await page.getByLabel("Name").inputValue(), "Ada Lovelace");
    await anna.cancel(id);
  });

  await report.check("live: what somebody opened stays open, and nothing else opens", async () => {
    const page = await viewers.visit("operator", "/");
    await isLive(page);
    const second = page.locator("main details").nth(1);
    await second.locator("summary").press("Enter");
    for (let round = 0; round < 2; round += 1) {
      await page.locator("main h2").first().evaluate((heading) => heading.classList.add("before"));
      const id = await anna.task("wait", HOUR);
      await page.locator(".before").waitFor({ state: "detached", timeout: FACTOR * LIST_MS });
      assert.ok(await second.locator("summary").evaluate((summary) => summary === document.activeElement));
      const open = await page.locator("main details").evaluateAll((all) => all.map((details) => details.open));
      assert.deepEqual(open, open.map((_, place) => place === 1));
      await anna.cancel(id);
    }
  });

  await report.check("live: a page whose stream is gone says so", async () => {
    const page = await viewers.visit("anna", "/tasks");
    await isLive(page);
    const { token, id } = await host.token("dora", "acme");
    await page.context().close();
    const other = await viewers.logIn("dora", token);
    await other.goto("/tasks");
    await isLive(other);
    await host.command("token", "revoke", id);
    await other.getByText(/^\W*not live\b/i).first().or(other.getByRole("heading", { name: "Log in" })).first().waitFor();
  });

  await report.check("live: what a hostile plugin says comes as text", async () => {
    // What a run says of itself is its requestor's alone; operators see what its record says.
    const ofRequestor = { viewer: "mallory", place: "/tasks", tool: "say", input: { text: TEXT, wait_ms: HOUR.ms } };
    const ofOperator = { viewer: "operator", place: "/tasks?tenant=dark", tool: "fail_with", input: { text: TEXT } };
    for (const { viewer, place, tool, input } of [ofRequestor, ofOperator]) {
      const page = await viewers.open(viewer);
      const seen = await watch(page.context(), host.dashboard);
      await page.goto(place);
      await isLive(page);
      const id = await mallory.task(tool, input);
      await row(page, id).waitFor({ timeout: FACTOR * LIST_MS });
      await page.locator("tr", { has: row(page, id) }).getByText("<script>").first().waitFor();
      await settle(page);
      assert.deepEqual(seen, []);
      if (tool === "say") await mallory.cancel(id);
      await page.context().close();
    }
  });
}
