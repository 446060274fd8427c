// What people do with tasks.
import assert from "node:assert/strict";

import { watch } from "../browser.mjs";
import { FORM } from "../world.mjs";

const HOUR = { ms: 3_600_000 };

/** Waits for a status on the page of a task. */
export async function shows(page, status) {
  await page.locator("main .status").first().filter({ hasText: status }).waitFor();
}

/** Fills every field of `FORM`; the content that this makes. */
export async function fill(page) {
  await page.getByLabel("Name").fill("Ada");
  await page.getByLabel("E-mail").fill("ada@example.com");
  await page.getByLabel("Web page").fill("https://example.com/ada");
  await page.getByLabel("Day").fill("2026-12-24");
  await page.getByLabel("Moment").fill("2026-12-24T10:00:00Z");
  await page.getByLabel("Travellers").fill("3");
  await page.getByLabel("Budget").fill("1234.5");
  await page.getByLabel("Insured").uncheck();
  await page.getByLabel("Class").selectOption("Business");
  await page.getByLabel("Seat").selectOption("At the window");
  await page.getByLabel("breakfast").check();
  await page.getByLabel("A bicycle").check();
  await page.getByLabel("A dog").check();
  return {
    name: "Ada",
    mail: "ada@example.com",
    page: "https://example.com/ada",
    day: "2026-12-24",
    moment: "2026-12-24T10:00:00Z",
    travellers: 3,
    budget: 1234.5,
    insured: false,
    class: "business",
    seat: "window",
    meals: ["breakfast"],
    extras: ["bike", "dog"],
  };
}

/** Waits until the browser shows the page after a button that ends a question. */
export async function isSent(page) {
  await page.getByRole("button", { name: "Send the answer" }).waitFor({ state: "detached" });
}

/** The answer that the plugin got, as the page of its task shows it. */
export async function answerShown(page) {
  const text = await page.locator("#live-result pre").first().innerText();
  return JSON.parse(text.slice(text.indexOf("{")));
}

export async function tasks(report, world) {
  const { viewers, clients } = world;
  const { anna } = clients;

  await report.check("tasks: a new task is on the lists of its requestor and of operators", async () => {
    const own = await viewers.visit("anna", "/tasks");
    const all = await viewers.visit("operator", "/tasks?tenant=acme");
    const foreign = await viewers.visit("ben", "/tasks");
    const id = await anna.task("wait", HOUR);
    for (const page of [own, all, foreign]) await page.reload();
    for (const page of [own, all]) await page.locator(`a[href="/tasks/${id}"]`).first().waitFor();
    assert.equal(await foreign.locator(`a[href="/tasks/${id}"]`).count(), 0);
    await foreign.goto(`/tasks/${id}`);
    assert.doesNotMatch(await foreign.locator("main").innerText(), /wait|acme/);
    await anna.cancel(id);
  });

  await report.check("tasks: a requestor pauses, resumes, cancels and deletes one", async () => {
    const id = await anna.taskUntil("working", "wait", HOUR);
    const page = await viewers.visit("anna", `/tasks/${id}`);
    await page.getByRole("button", { name: "Pause" }).click();
    await shows(page, "paused");
    await page.getByRole("button", { name: "Resume" }).click();
    await shows(page, "running");
    await page.getByRole("button", { name: "Cancel the task" }).click();
    await shows(page, "cancelled");
    assert.equal(await anna.status(id), "cancelled");
    assert.equal(await page.getByRole("button", { name: /pause|resume|cancel/i }).count(), 0);
    await page.getByText("Delete…").click();
    await page.getByRole("button", { name: "Delete the task" }).click();
    await page.waitForURL(/\/tasks$/);
    assert.equal(await page.locator(`a[href="/tasks/${id}"]`).count(), 0);
  });

  await report.check("tasks: an operator pauses, resumes, cancels and purges one", async () => {
    const id = await anna.taskUntil("working", "wait", HOUR);
    const page = await viewers.visit("operator", `/tasks/${id}`);
    await page.getByRole("button", { name: "Pause" }).click();
    await shows(page, "paused");
    await page.getByRole("button", { name: "Resume" }).click();
    await shows(page, "running");
    await page.getByRole("button", { name: "Cancel the task" }).click();
    await shows(page, "cancelled");
    await page.getByText("Purge…").click();
    await page.getByRole("button", { name: "Purge the task" }).click();
    await page.waitForURL(/\/tasks$/);
    const gone = await page.goto(`/tasks/${id}`);
    assert.equal(gone.status(), 404);
  });

  await report.check("tasks: a form with every kind of field is answered", async () => {
    const id = await anna.taskUntil("input_required", "ask_form", { message: "Which journey?", schema: FORM });
    const page = await viewers.visit("anna", `/tasks/${id}`);
    await page.getByText("Which journey?").first().waitFor();
    const expected = await fill(page);
    await page.getByRole("button", { name: "Send the answer" }).click();
    await isSent(page);
    await anna.until(id, "completed");
    await page.goto(`/tasks/${id}`);
    assert.deepEqual(await answerShown(page), expected);
  });

  await report.check("tasks: what is missing is said before anything is sent, and by the host as well", async () => {
    const schema = { type: "object", properties: { code: { type: "string", title: "Code", minLength: 4 } }, required: ["code"] };
    const id = await anna.taskUntil("input_required", "ask_form", { message: "A code?", schema });
    const page = await viewers.visit("anna", `/tasks/${id}`);
    await page.getByRole("button", { name: "Send the answer" }).click();
    assert.equal(await page.getByLabel("Code").evaluate((field) => field.validity.valueMissing), true);
    await page.getByLabel("Code").fill("abc");
    await page.getByRole("button", { name: "Send the answer" }).click();
    await page.getByRole("alert").filter({ hasText: "code" }).waitFor();
    assert.equal(await page.getByLabel("Code").inputValue(), "abc", "what was filled in comes back");
    await page.getByLabel("Code").fill("abcd");
    await page.getByRole("button", { name: "Send the answer" }).click();
    await isSent(page);
    await anna.until(id, "completed");
  });

  await report.check("tasks: a question is declined, another one is cancelled", async () => {
    for (const [button, action] of [["Decline", /decline/i], ["Cancel the question", /cancel/i]]) {
      const id = await anna.taskUntil("input_required", "ask_form", { message: "Well?", schema: FORM });
      const page = await viewers.visit("anna", `/tasks/${id}`);
      await page.getByRole("button", { name: button }).click();
      await isSent(page);
      await anna.until(id, "completed");
      await page.goto(`/tasks/${id}`);
      assert.match(await page.locator("main pre").last().innerText(), action);
    }
  });

  await report.check("tasks: a page to visit is shown whole, and opened only by a click", async () => {
    const page = await viewers.visit("anna", `/tasks/${world.tasks.visit}`);
    const link = page.getByRole("link", { name: "Open that page" });
    assert.equal(await link.getAttribute("href"), "https://example.com/a?b=c");
    assert.match(await link.getAttribute("rel"), /noopener.*noreferrer/);
    await page.getByText("https://example.com/a?b=c").first().waitFor();
  });

  await report.check("tasks: an image of a result is drawn on a page of its own, and loads nothing from elsewhere", async () => {
    const page = await viewers.visit("anna", `/tasks/${world.tasks.done}`);
    const seen = await watch(page.context(), world.host.dashboard);
    await page.getByRole("link", { name: "Show it" }).click();
    const image = page.getByRole("img", { name: "The image of the result" });
    assert.ok(await image.evaluate(async (it) => (await it.decode(), it.naturalWidth > 0)));
    assert.deepEqual(seen.filter((said) => !said.startsWith("request: data:image/png;")), []);
  });

  await report.check("tasks: operators see no arguments, questions or results", async () => {
    for (const [task, secret] of [[world.tasks.done, "an embedded text"], [world.tasks.form, "Which journey"]]) {
      const own = await viewers.visit("anna", `/tasks/${task}`);
      assert.ok((await own.locator("main").innerText()).includes(secret));
      const page = await viewers.visit("operator", `/tasks/${task}`);
      await page.getByText("shown to the requestor alone").waitFor();
      assert.ok(!(await page.content()).includes(secret));
      assert.equal(await page.getByRole("button", { name: "Send the answer" }).count(), 0);
    }
  });
}
