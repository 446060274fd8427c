// Views of MCP Apps in the dashboard: what one shows, and what it cannot reach.
import assert from "node:assert/strict";

import { violations } from "../browser.mjs";
import { PREVIEW_ORIGIN, until } from "../host.mjs";
import { overflow } from "./access.mjs";

const RAIN = { title: "Rain", values: [0, 3, 6, 0] };

/** Calls the sample in its form and waits for its view; the page, and the frame around the view and that of the view itself. */
async function shown(world) {
  const page = await world.viewers.open("anna");
  const sent = [];
  page.on("request", (request) => sent.push(request));
  await page.goto("/tools/chart");
  await page.locator("[name='field.title']").fill(RAIN.title);
  await page.locator("[name='field.values']").fill(JSON.stringify(RAIN.values));
  await page.getByRole("button", { name: "Call it and show its view" }).first().click();
  const view = page.frameLocator(".app-view iframe").frameLocator("iframe");
  await view.locator("#about", { hasText: "From 0 to 6, 4 values." }).waitFor();
  const outer = page.frames().find((frame) => frame.parentFrame() === page.mainFrame());
  const inner = page.frames().find((frame) => frame.parentFrame() === outer);
  return { page, view, outer, inner, sent };
}

/** What a script in a frame gets of something, or why it gets nothing. */
function reach(frame, what) {
  return frame.evaluate(async (what) => {
    const tries = {
      "the page": () => parent.document.title,
      "the first page": () => top.document.title,
      "the address of the page": () => top.location.href,
      "the frame around it": () => parent.document.body,
      cookies: () => document.cookie,
      storage: () => String(localStorage.length),
      "a way out of the frame": () => {
        top.location = "https://example.com/";
      },
    };
    try {
      return `reached: ${await tries[what]()}`;
    } catch (error) {
      return error.name;
    }
  }, what);
}

/** What a request of a frame comes to. */
function fetched(frame, address) {
  return frame.evaluate(
    async (address) => fetch(address, { credentials: "include" }).then((response) => response.status, (error) => error.name),
    address,
  );
}

export async function apps(report, world) {
  await report.check("apps: a view has its input and result, and calls a tool of its plugin", async () => {
    const { page, view, outer } = await shown(world);
    assert.equal(new URL(outer.url()).hostname, new URL(PREVIEW_ORIGIN).hostname);
    assert.equal(await view.locator("#title").innerText(), RAIN.title);
    await view.locator("#smooth").click();
    await view.locator("#about", { hasText: "From 1.5 to 3, 4 values." }).waitFor();
    assert.deepEqual(await page.locator(".app-view li").allInnerTexts(), ["smooth: done"]);
    // It has said how high it is.
    assert.match(await page.locator(".app-view iframe").getAttribute("style"), /^height: \d+px;$/);
    await page.locator("summary", { hasText: "Messages" }).click();
    await page.setViewportSize({ width: 360, height: 700 });
    assert.deepEqual(await overflow(page), []);
    assert.deepEqual(await violations(page), []);
  });

  await report.check("apps: the other origin is sent no cookie, and a view reaches neither page nor host", async () => {
    const { page, outer, inner, sent } = await shown(world);
    const { host } = world;
    const origin = new URL(outer.url()).origin;
    assert.notEqual(new URL(origin).hostname, new URL(page.url()).hostname);
    const cookieOf = async (request) => (await request.allHeaders()).cookie;
    const toPreview = sent.filter((request) => new URL(request.url()).origin === origin);
    const toDashboard = sent.filter((request) => new URL(request.url()).origin === host.dashboard);
    assert.equal(toPreview.length, 1, "the frame is all that is loaded there");
    for (const request of toPreview) assert.equal(await cookieOf(request), undefined, request.url());
    assert.match(await cookieOf(toDashboard[0]), /bulkhead/, "the dashboard itself is sent one");
    for (const what of ["the page", "the first page", "the address of the page"]) {
      assert.equal(await reach(outer, what), "SecurityError", `${what}, from the frame`);
    }
    assert.equal(await reach(outer, "cookies"), "reached: ", "there is none at this origin");
    for (const what of ["the page", "the first page", "the address of the page", "the frame around it", "cookies", "storage"]) {
      assert.equal(await reach(inner, what), "SecurityError", `${what}, from the view`);
    }
    for (const frame of [outer, inner]) {
      assert.equal(await reach(frame, "a way out of the frame"), "SecurityError");
      for (const address of [`${host.dashboard}/tasks`, `${origin}/`, host.url]) {
        assert.equal(await fetched(frame, address), "TypeError", address);
      }
    }
    // Nothing else is there, and no other page may frame it.
    for (const path of ["/", "/login", "/tasks", "/frame", "/assets/live.js"]) {
      const there = await page.context().newPage();
      assert.equal((await there.goto(`${origin}${path}`)).status(), 404, path);
      await there.close();
    }
    const foreign = await page.context().newPage();
    await foreign.setContent(`<iframe src="${outer.url().replaceAll("&", "&amp;")}"></iframe>`);
    await until("the refusal to be framed", async () =>
      foreign.frames().some((frame) => frame.parentFrame() && frame.url().startsWith("chrome-error:")));
  });

  await report.check("apps: a view calls no tool of another plugin, and none without the form of its page", async () => {
    const { page, inner } = await shown(world);
    const asked = (method, params) =>
      inner.evaluate(
        ([method, params]) =>
          new Promise((done) => {
            addEventListener("message", ({ data }) => data.id === "mine" && done(data));
            parent.postMessage({ jsonrpc: "2.0", id: "mine", method, params }, "*");
          }),
        [method, params],
      );
    const other = await asked("tools/call", { name: "echo", arguments: { text: "x" } });
    assert.match(other.error.message, /^Unknown tool: echo/);
    assert.match((await asked("resources/read", { uri: "ui://chart/view.html" })).error.message, /^Method not found/);
    assert.deepEqual((await asked("ping", {})).result, {});
    const status = await page.evaluate(async () => {
      const { call } = document.querySelector(".app-view").dataset;
      const body = new URLSearchParams({ form_token: "0".repeat(64), name: "smooth", arguments: "{}" });
      return (await fetch(call, { method: "POST", body })).status;
    });
    assert.equal(status, 403);
  });
}
