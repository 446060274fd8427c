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
  await report.check("tools: one is called plainly, on a page that everybody can use, and shows an image and the messages", async () => {
    const page = await world.viewers.visit("anna", "/tools/contents");
    await page.getByRole("button", { name: "Call it", exact: true }).first().click();
    await page.getByText(/^Done in /).waitFor();
    await page.getByText("an embedded text").first().waitFor();
    await page.locator("summary", { hasText: "An image" }).click();
    const image = page.getByRole("img", { name: "The image of the result" });
    assert.ok(await image.evaluate(async (it) => (await it.decode(), it.naturalWidth > 0)));
    await page.locator("summary", { hasText: "Messages" }).click();
    await page.locator("details pre", { hasText: '"tools/call"' }).waitFor();
    await isUsable(page);
    await page.getByRole("button", { name: "Call it", exact: true }).first().click();
    await page.getByText(/^Done in /).waitFor();
  });
}

/** What plugins offer besides is read. */
export async function resources(report, world) {
  await report.check("resources: one is read from the list, and shows its text and the messages", async () => {
    const page = await world.viewers.visit("anna", "/resources");
    await page.getByRole("button", { name: "Read chart" }).click();
    await page.getByText(/^Done in /).waitFor();
    await page.locator("main pre", { hasText: "<!doctype html>" }).first().waitFor();
    await page.locator("summary", { hasText: "Messages" }).click();
    await page.locator("details pre", { hasText: '"resources/read"' }).waitFor();
    await isUsable(page);
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

/** The operators' first screen says how the host does, and a chart says the value below the pointer. */
export async function firstScreen(report, world) {
  await report.check("first screen: four tiles stand above everything else, each with a line", async () => {
    const page = await world.viewers.visit("operator", "/");
    const tiles = page.locator("main .tiles li");
    assert.deepEqual(await tiles.locator("a").allInnerTexts(), ["Calls a second", "Errors", "p99", "Waiting for people"]);
    assert.equal(await tiles.locator("svg").count(), 4);
    const ends = await tiles.evaluateAll((all) => all.map((tile) => tile.getBoundingClientRect().bottom));
    assert.ok(Math.max(...ends) < 400, `the tiles end at ${ends}`);
  });
  await report.check("charts: two values and three times are written beside, and the pointer reads one", async () => {
    const page = await world.viewers.visit("operator", "/");
    const chart = page.locator("figure.chart", { has: page.locator(".plot") }).first();
    assert.equal(await chart.locator(".plot .high span").count(), 2);
    assert.ok((await chart.locator(".plot .long span").count()) <= 3);
    await until("the reading", async () => {
      await chart.locator(".plot svg").hover();
      return /^\d\d:\d\d:\d\d · /.test(await page.locator(".reading").first().innerText({ timeout: 1_000 }).catch(() => ""));
    });
  });
}

/** Pages say what they are about, and in which units. */
export async function words(report, world) {
  await report.check("words: the login says what this is, the head which host and version, and a limit what it is for", async () => {
    const { viewers, host } = world;
    const login = await viewers.visit("nobody", "/login");
    assert.match(await login.locator("main").innerText(), /Bulkhead/);
    const page = await viewers.visit("operator", "/");
    const { version } = await host.command("host", "status");
    assert.match(await page.locator("header .brand").innerText(), new RegExp(`Bulkhead ${version} on \\S+`));
    const own = await viewers.visit("anna", "/limits");
    assert.ok((await own.locator("main td small").count()) > 10, "sentences beside their keys");
    await page.goto("/plugins/text");
    const grants = page.getByRole("region", { name: "Grants", exact: true });
    assert.match(await grants.locator("tr", { hasText: "call.memory_bytes" }).innerText(), /\d [KMG]iB/);
    assert.match(await grants.locator("tr", { hasText: "call.wall_ms" }).innerText(), /\d (min|s|h)\b/);
  });
}

/** Times are said in the way that the viewer chose. */
export async function times(report, world) {
  await report.check("times: a button shows them as they are, on every page and back, and a script leaves them alone", async () => {
    const page = await world.viewers.visit("operator", "/tasks?tenant=acme");
    await page.getByRole("button", { name: "Exact times" }).click();
    assert.equal(new URL(page.url()).search, "?tenant=acme");
    const exact = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/;
    const first = page.locator("main time").first();
    // By then the script has gone over all times.
    await page.locator(".live", { hasText: "● live" }).waitFor();
    assert.match(await first.innerText(), exact);
    await page.goto("/audit");
    assert.match(await page.locator("main time").first().innerText(), exact);
    await page.getByRole("button", { name: "Relative times" }).click();
    assert.match(await page.locator("main time").first().innerText(), / ago$/);
  });
}

/** A list leads to what it lists, and its address says what it shows. */
export async function lists(report, world) {
  await report.check("lists: a name is the link, a filter is a chip, and an id is found from every page", async () => {
    const { tasks } = world;
    const page = await world.viewers.visit("operator", "/tasks?tenant=acme&tool=wait");
    const first = page.locator("tbody tr td:first-child a").first();
    assert.equal(await first.innerText(), "wait");
    assert.match(await page.locator(".count").innerText(), /^\d+ tasks?/);
    await page.getByRole("link", { name: /^Tenant:/ }).click();
    await until("the list without it", async () => new URL(page.url()).search === "?tool=wait&sort=-changed");
    await page.getByRole("columnheader", { name: "Status" }).getByRole("link").click();
    await until("the other order", async () => new URL(page.url()).searchParams.get("sort") === "status");
    assert.equal(await page.getByRole("columnheader", { name: "Status" }).getAttribute("aria-sort"), "ascending");
    const bar = await page.locator(".bulk").boundingBox();
    assert.ok(bar && bar.y + bar.height <= page.viewportSize().height + 1, "the bar for what is chosen is in the window");
    await page.goto("/tenants");
    await page.getByRole("searchbox").fill(tasks.form);
    await page.getByRole("searchbox").press("Enter");
    await page.getByRole("heading", { level: 1, name: "ask_form" }).waitFor();
  });
  await report.check("lists: at 360 pixels the link of a task is in the window, and the banner leads to the question", async () => {
    const small = { viewport: { width: 360, height: 640 } };
    const page = await world.viewers.visit("anna", "/tasks", small);
    for (const link of await page.locator("tbody a").all()) {
      const { x, width } = await link.boundingBox();
      assert.ok(x >= 0 && x + width <= 360, `${x} and ${width}`);
    }
    await page.locator(".notice.ask a").click();
    await page.getByText("The text above is the plugin's").or(page.locator("section.question")).first().waitFor();
  });
}

/** What belongs together is linked. */
export async function links(report, world) {
  await report.check("links: from a task to its plugin, from there to its tool, and back to its tasks", async () => {
    const page = await world.viewers.visit("operator", `/tasks/${world.tasks.form}`);
    assert.match(await page.locator("svg.life").getAttribute("aria-label"), /asking \d/);
    await page.locator("dl a[href='/plugins/probe'], dl a[href^='/plugins/']").first().click();
    await page.getByRole("heading", { level: 2, name: "Tools" }).waitFor();
    await page.locator("main td a[href$='/tools/ask_form']").click();
    await page.getByRole("heading", { level: 1, name: "ask_form" }).waitFor();
    await page.getByRole("link", { name: "Tasks of this tool" }).click();
    await page.locator(`a[href="/tasks/${world.tasks.form}"]`).waitFor();
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
  await report.check("audit: what operators only looked at is left out until it is asked for", async () => {
    const page = await world.viewers.open("operator");
    await page.goto("/tenants");
    const looks = /limits in use/;
    await until("the look", async () => {
      await page.goto("/audit?event=operator.command&show=all");
      return looks.test(await page.locator("main").innerText());
    });
    await page.getByRole("link", { name: "Changes only" }).click();
    await page.getByRole("link", { name: "Show everything" }).waitFor();
    assert.doesNotMatch(await page.locator("main").innerText(), looks);
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
