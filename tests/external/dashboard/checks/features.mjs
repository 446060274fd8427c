// What single features do, each in a function of its own.
import assert from "node:assert/strict";

import { sendToken, violations } from "../browser.mjs";
import { until, variant } from "../host.mjs";
import { overflow } from "./access.mjs";
import { shows } from "./tasks.mjs";

const HOUR = { ms: 3_600_000 };
const OWN_TASK = /\/tasks\/[0-9a-f]{32}$/;

/** Tools are called in a form. */
export async function tools(report, world) {
  await report.check("tools: one is called in its form, and becomes a task", async () => {
    const page = await world.viewers.visit("anna", "/tools");
    await page.locator('main a[href="/tools/wait"]').first().click();
    await page.getByLabel(/ms/i).first().fill("50");
    await page.getByRole("button", { name: "Call it as a task" }).first().click();
    await page.waitForURL(OWN_TASK);
    await world.clients.anna.until(page.url().slice(-32), "completed");
  });
}

/** A requestor sees what is in use of their limits. */
export async function limits(report, world) {
  await report.check("limits: a requestor sees their own", async () => {
    const page = await world.viewers.visit("anna", "/limits");
    const text = await page.locator("main").innerText();
    assert.match(text, /tasks_stored_per_requestor/);
    assert.doesNotMatch(text, /globex|ben@/);
  });
}

/** The operators' first page draws numbers. */
export async function charts(report, world) {
  await report.check("charts: each has a name and its numbers as text", async () => {
    const page = await world.viewers.visit("operator", "/");
    await page.locator("main svg").first().waitFor();
    for (const chart of await page.locator("main svg").all()) {
      const isHidden = (await chart.getAttribute("aria-hidden")) === "true";
      const name = (await chart.getAttribute("aria-label")) ?? (await chart.getAttribute("aria-labelledby"));
      assert.ok(isHidden || name || (await chart.locator("title").count()) > 0, await chart.innerHTML());
    }
    const numbers = await page.locator("figure summary").allInnerTexts();
    assert.ok(numbers.length > 1 && numbers.every((text) => text.startsWith("Numbers of ")), numbers.join("; "));
    assert.equal(new Set(numbers).size, numbers.length, numbers.join("; "));
  });
}

/** Operators do one thing with many tasks. */
export async function bulk(report, world) {
  await report.check("bulk: tasks that are chosen are cancelled, and no others", async () => {
    const { anna } = world.clients;
    const start = () => anna.taskUntil("working", "wait", HOUR);
    const [first, second, other] = [await start(), await start(), await start()];
    const page = await world.viewers.visit("operator", "/tasks?tenant=acme&status=running");
    for (const id of [first, second]) {
      await page.locator("tr", { has: page.locator(`a[href="/tasks/${id}"]`) }).getByRole("checkbox").check();
    }
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    for (const id of [first, second]) await anna.until(id, "cancelled");
    assert.equal(await anna.status(other), "working");
    await anna.cancel(other);
  });

  await report.check("bulk: purging asks once more, on pages that everybody can use", async () => {
    const { anna } = world.clients;
    const ids = [await anna.taskUntil("completed", "contents"), await anna.taskUntil("completed", "contents")];
    const page = await world.viewers.visit("operator", "/tasks?tenant=acme", { viewport: { width: 360, height: 700 } });
    const box = (id) => page.locator("tr", { has: page.locator(`a[href="/tasks/${id}"]`) }).getByRole("checkbox");
    for (const id of ids) await box(id).check();
    await page.getByRole("button", { name: "Purge…" }).click();
    await page.getByRole("heading", { level: 1, name: "Purge tasks" }).waitFor();
    for (const id of ids) assert.equal(await anna.status(id), "completed", "nothing is gone yet");
    await isUsable(page);
    await page.getByRole("button", { name: "Purge 2 tasks" }).click();
    await page.getByText("2 done, 0 refused.").waitFor();
    await isUsable(page);
    for (const id of ids) assert.equal((await page.goto(`/tasks/${id}`)).status(), 404);
  });
}

/** Whether a page that only a form leads to is as the others. */
async function isUsable(page) {
  assert.deepEqual(await overflow(page), []);
  assert.deepEqual(await violations(page), []);
}

/** Versions of plugins are looked at, switched to and back. */
export async function versions(report, world) {
  await report.check("versions: a staged one is read, accepted, activated and rolled back", async () => {
    const { host, viewers } = world;
    const words = ["Returns the text as it is.", "Returns the text unchanged"];
    const file = await variant("text", ...words, host.file("text-next.wasm"));
    await host.command("plugin", "stage", file, "--name", "text");
    const active = async () => {
      const { plugins } = await host.command("plugin", "list");
      return plugins.find((plugin) => plugin.name === "text").active;
    };
    const before = await active();
    const page = await viewers.visit("operator", "/plugins/text");
    const staged = page.locator("tr", { has: page.getByRole("cell", { name: /^(staged|checked)$/ }) });
    await staged.locator("a[href$='/changes']").first().click();
    await page.getByText(words[1]).first().waitFor();
    await page.getByRole("checkbox").first().check();
    await page.getByRole("button", { name: /activate/i }).first().click();
    await until("the switch", async () => (await active()) !== before);
    await page.goto("/plugins/text");
    await page.locator("summary", { hasText: "Roll back" }).click();
    await page.getByRole("button", { name: "Roll back" }).click();
    await until("the way back", async () => (await active()) === before);
  });
}

/** Operators see what plugins were denied. */
export async function denials(report, world) {
  await report.check("denials: what a plugin was denied is listed", async () => {
    await world.clients.anna.request("tools/call", { name: "send", arguments: { url: "https://denied.example/" } });
    const page = await world.viewers.open("operator");
    await until("the denial", async () => {
      await page.goto("/denials");
      return /probe/.test(await page.locator("main").innerText());
    });
  });
}

/** Operators read the audit log. */
export async function audit(report, world) {
  await report.check("audit: logins are listed, and a filter leaves others out", async () => {
    const page = await world.viewers.open("operator");
    await until("the login", async () => {
      await page.goto("/audit?event=dashboard.login");
      return /dashboard\.login/.test(await page.locator("main").innerText());
    });
    assert.doesNotMatch(await page.locator("main tbody").first().innerText(), /task\.created/);
  });
}

/** Operators make and revoke tokens. */
export async function tokens(report, world) {
  await report.check("tokens: a new one is shown once, logs in, and is revoked", async () => {
    const page = await world.viewers.visit("operator", "/tokens");
    const form = page.locator("form[method=post][action='/tokens']");
    await form.getByLabel("Requestor").fill("emma");
    await form.getByLabel("Tenant").fill("acme");
    await form.getByRole("button").click();
    await page.getByRole("heading", { level: 1, name: "A new token" }).waitFor();
    const token = /\bbh_\S+/.exec(await page.locator("main").innerText())?.[0];
    assert.ok(token, "the token is on the page");
    await isUsable(page);
    await page.goto("/tokens");
    assert.ok(!(await page.content()).includes(token), "it is shown once");
    const emma = await world.viewers.visit("nobody", "/login");
    await sendToken(emma, token);
    await emma.getByRole("heading", { level: 1, name: "My tasks" }).waitFor();
    const row = page.locator("tr", { hasText: "emma" });
    await row.getByRole("button", { name: "Revoke" }).click();
    await until("the login page", async () => {
      await emma.goto("/tasks");
      return new URL(emma.url()).pathname === "/login";
    });
  });
}

/** Operators drain a host. */
export async function hosts(report, world) {
  await report.check("hosts: a host is drained and goes on", async () => {
    const page = await world.viewers.visit("operator", "/hosts");
    const drains = async () => (await world.host.command("host", "status")).draining;
    await page.locator("summary", { hasText: "Drain…" }).click();
    await page.getByRole("button", { name: "Drain the host" }).click();
    await until("the drain", drains);
    await page.goto("/hosts");
    await page.getByRole("button", { name: "Take new work again" }).click();
    await until("its end", async () => !(await drains()));
  });
}

/** A requestor sends messages to a running task. */
export async function steer(report, world) {
  await report.check("steer: a message reaches the task", async () => {
    const { anna } = world.clients;
    const id = await anna.taskUntil("working", "wait", HOUR);
    const page = await world.viewers.visit("anna", `/tasks/${id}`);
    const form = page.locator("form[action$='/steer']");
    await form.getByRole("textbox").fill("stop");
    await form.getByRole("button").click();
    await anna.until(id, "completed");
    await page.goto(`/tasks/${id}`);
    await shows(page, "succeeded");
  });
}

/** A lead sees its tenant, and no more of the tasks than operators do. */
export async function lead(report, world) {
  await report.check("lead: it sees tasks of its tenant, without what is their requestors' alone", async () => {
    const page = await world.viewers.visit("lead", "/tenant/tasks");
    await page.locator(`a[href="/tenant/tasks/${world.tasks.done}"]`).first().waitFor();
    assert.equal(await page.locator(`a[href="/tenant/tasks/${world.tasks.ofBen}"]`).count(), 0);
    await page.goto(`/tenant/tasks/${world.tasks.done}`);
    assert.ok(!(await page.content()).includes("an embedded text"));
    assert.equal((await page.goto(`/tenant/tasks/${world.tasks.ofBen}`)).status(), 404);
  });

  await report.check("lead: it pauses, resumes and cancels a task of its tenant", async () => {
    const { anna } = world.clients;
    const id = await anna.taskUntil("working", "wait", HOUR);
    const page = await world.viewers.visit("lead", `/tenant/tasks/${id}`);
    await page.getByRole("button", { name: "Pause" }).click();
    await shows(page, "paused");
    await page.getByRole("button", { name: "Resume" }).click();
    await shows(page, "running");
    await page.getByRole("button", { name: "Cancel the task" }).click();
    await shows(page, "cancelled");
    assert.equal(await anna.status(id), "cancelled");
  });
}
