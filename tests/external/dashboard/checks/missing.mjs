// What is not there yet: a feature that came without its checks fails here, and is switched on in `features.mjs`.
import assert from "node:assert/strict";

import { FEATURES } from "../features.mjs";
import { MISSING_PAGES, placeOf, titleOf } from "../pages.mjs";

/** Features that are no pages of their own, each with the page where its part would be. */
const PARTS = [
  { feature: "live", viewer: "anna", path: "/tasks", part: "script[src], live-part" },
  { feature: "charts", viewer: "operator", path: "/", part: "main svg" },
  { feature: "bulk", viewer: "operator", path: "/tasks", part: "tbody input[type=checkbox]" },
  { feature: "versions", viewer: "operator", path: "/plugins/desk", part: "main form[method=post]" },
  { feature: "steer", viewer: "anna", path: ({ tasks }) => `/tasks/${tasks.running}`, part: "form[action$='/steer']" },
];

export async function missing(report, world) {
  await report.check("features: what is switched off in features.mjs is not there", async () => {
    // Without leads nobody logs in as one; a lead's pages are absent for everybody else anyway.
    for (const entry of MISSING_PAGES.filter(({ viewer }) => viewer !== "lead")) {
      const page = await world.viewers.open(entry.viewer);
      const answer = await page.goto(placeOf(entry, world));
      assert.equal(answer.status(), 404, `${titleOf(entry)} is there: switch ${entry.feature} on`);
      await page.context().close();
    }
    for (const entry of PARTS.filter(({ feature }) => !FEATURES[feature])) {
      const page = await world.viewers.visit(entry.viewer, placeOf(entry, world));
      assert.equal(await page.locator(entry.part).count(), 0, `${entry.feature} is there: switch it on`);
      await page.context().close();
    }
  });
}
