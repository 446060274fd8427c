import assert from "node:assert/strict";
import { test } from "node:test";

import { Search } from "./search.js";

const range = { from: "2026-03-02T00:00:00Z", to: "2026-03-04T00:00:00Z", minutes: 60 };
const busy = (start, end) => ({ start: `2026-03-${start}:00Z`, end: `2026-03-${end}:00Z` });

function slots(search, max = 9) {
  while (search.advance(max));
  return search.slots.map(({ start }) => start);
}

test("a slot is one in which nobody is busy", () => {
  const ada = { name: "Ada", busy: [busy("02T09:00", "02T15:00")] };
  const alan = { name: "Alan", busy: [busy("02T15:30", "02T23:00"), busy("03T00:00", "03T16:00")] };
  assert.deepEqual(slots(new Search({ ...range, participants: [ada, alan] })), ["2026-03-03T16:00Z"]);
});

test("it goes on without somebody, from the beginning", () => {
  const search = new Search({ ...range, participants: [{ name: "Ada", busy: [busy("01T00:00", "09T00:00")] }, { name: "Alan" }] });
  assert.deepEqual(slots(search), []);
  assert.equal(search.without("nobody"), false);
  assert.equal(search.without("ada"), true);
  assert.deepEqual(slots(search, 2), ["2026-03-02T09:00Z", "2026-03-02T10:00Z"]);
  assert.equal(search.without("Alan"), false, "somebody must be left");
});

test("what is no time is refused", () => {
  assert.throws(() => new Search({ ...range, from: "tomorrow", participants: [{ name: "Ada" }] }), /no time/);
  assert.throws(() => new Search({ ...range, to: range.from, participants: [{ name: "Ada" }] }), /not after/);
});
