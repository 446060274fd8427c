// Who comes in, and who does not any more.
import assert from "node:assert/strict";
import { createServer } from "node:http";

import { sendToken } from "../browser.mjs";
import { Host, until } from "../host.mjs";

/** The pages end with their session within two seconds; this is what a busy machine may add. */
const REVOKED_MS_MAX = 10_000;

export async function login(report, world) {
  const { host, viewers } = world;

  await report.check("login: a link works once", async () => {
    const link = await host.link();
    const page = await viewers.visit("nobody", link);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    const again = await viewers.visit("nobody", link);
    await again.getByRole("button", { name: "Log in" }).click();
    await again.getByRole("alert").filter({ hasText: "not valid here" }).waitFor();
  });

  await report.check("login: the administrators' token makes an operator", async () => {
    const page = await viewers.visit("nobody", "/");
    assert.equal(new URL(page.url()).pathname, "/login", "without a session there is only the login");
    await sendToken(page, host.adminToken);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.locator(".who", { hasText: "operator" }).waitFor();
  });

  await report.check("login: a requestor's token shows their tasks, and logging out hides them", async () => {
    const page = await viewers.visit("nobody", "/login");
    await sendToken(page, world.tokens.ben.token);
    await page.getByRole("heading", { level: 1, name: "My tasks" }).waitFor();
    await page.locator(".who", { hasText: "ben@globex" }).waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByRole("heading", { level: 1, name: "Log in" }).waitFor();
    await page.goBack();
    await page.getByRole("heading", { level: 1, name: "Log in" }).waitFor();
  });

  await report.check("login: an issuer makes an operator of some and a requestor of others", async () => {
    const { issuer } = world;
    const enter = async (claims) => {
      issuer.claims = claims;
      const page = await viewers.visit("nobody", "/login");
      await page.getByRole("link", { name: `Log in at ${issuer.url}` }).click();
      return page;
    };
    const operator = await enter({ sub: "olga", groups: ["operators"] });
    await operator.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    assert.equal(new URL(operator.url()).pathname, "/");
    const requestor = await enter({ sub: "rosa", groups: ["guests"] });
    await requestor.getByRole("heading", { level: 1, name: "My tasks" }).waitFor();
    await requestor.getByRole("button", { name: "Log out" }).click();
    await requestor.getByRole("heading", { level: 1, name: "Log in" }).waitFor();
    const foreign = await enter({ sub: "eva", nonce: "of another login" });
    await foreign.getByRole("alert").filter({ hasText: "did not succeed" }).waitFor();
  });

  await report.check("login: a wrong token is refused, and the field is empty again", async () => {
    const page = await viewers.visit("nobody", "/login");
    await sendToken(page, "wrong");
    await page.getByRole("alert").filter({ hasText: "not valid here" }).waitFor();
    assert.equal(await page.getByLabel("Token").inputValue(), "");
  });

  await report.check("login: no script can read the session, and the browser keeps nothing else", async () => {
    const page = await viewers.visit("anna", "/tasks");
    const kept = await page.evaluate(() => [document.cookie, localStorage.length, sessionStorage.length]);
    assert.deepEqual(kept, ["", 0, 0]);
    const cookies = await page.context().cookies();
    assert.ok(cookies.length > 0 && cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Strict"));
  });

  await report.check("login: a session at a name of this machine reaches no server of another port", async () => {
    const own = await Host.start({ plugins: [], allowedHosts: [] });
    const cookies = [];
    const other = createServer((request, response) => {
      cookies.push(request.headers.cookie);
      response.end("another server");
    });
    await new Promise((done) => other.listen(0, done));
    try {
      const { token } = await own.token("anna", "acme");
      const page = await viewers.open("nobody");
      await page.goto(`${own.dashboard}/login`);
      const { hostname } = new URL(page.url());
      assert.match(hostname, /^bulkhead-[0-9a-f]{32}\.localhost$/);
      await sendToken(page, token);
      await page.getByRole("heading", { level: 1, name: "My tasks" }).waitFor();
      assert.equal(new URL(page.url()).hostname, hostname);
      assert.equal((await page.context().cookies()).length, 1, "there is a session to lose");
      for (const name of ["127.0.0.1", "localhost"]) await page.goto(`http://${name}:${other.address().port}/`);
      assert.ok(cookies.length >= 2 && cookies.every((cookie) => cookie === undefined), JSON.stringify(cookies));
      await page.goto(`${own.dashboard}/tasks`);
      await page.getByRole("heading", { level: 1, name: "Log in" }).waitFor();
      await page.context().close();
    } finally {
      other.close();
      await own.stop();
    }
  });

  await report.check("login: a revoked token ends the session of an open page", async () => {
    const { token, id } = await host.token("carla", "acme");
    const page = await viewers.visit("nobody", "/login");
    await sendToken(page, token);
    await page.getByRole("heading", { level: 1, name: "My tasks" }).waitFor();
    await host.command("token", "revoke", id);
    const second = await page.context().newPage();
    await until("the login page", async () => {
      await second.goto("/tasks");
      return new URL(second.url()).pathname === "/login";
    }, REVOKED_MS_MAX);
    // What the page shows that was open is of before, and does nothing any more.
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByRole("heading", { level: 1, name: "Log in" }).waitFor();
  });

  await report.check("login: a form of a session that has ended changes nothing", async () => {
    const page = await viewers.visit("nobody", "/login");
    await sendToken(page, world.tokens.anna.token);
    await page.goto(`/tasks/${world.tasks.running}`);
    await page.context().clearCookies();
    await page.getByRole("button", { name: "Cancel the task" }).click();
    await page.getByRole("alert").filter({ hasText: "session has ended" }).waitFor();
    assert.equal(await world.clients.anna.status(world.tasks.running), "working");
  });
}
