// Finds times when everybody is free, and arranges a meeting with the user's choice.

import { ask, definePlugin, task } from "bulkhead-plugin";

import { Search } from "./search.js";

const CHOICES_MAX = 5;

const time = { type: "string", description: "ISO 8601 with a zone, like 2026-03-02T09:00:00Z." };
const slot = {
  type: "object",
  properties: { start: time, end: time },
  required: ["start", "end"],
  additionalProperties: false,
};
const input = {
  type: "object",
  properties: {
    participants: {
      type: "array",
      minItems: 1,
      maxItems: 100,
      items: {
        type: "object",
        properties: { name: { type: "string", minLength: 1 }, busy: { type: "array", items: slot } },
        required: ["name"],
        additionalProperties: false,
      },
    },
    from: { ...time, description: "No meeting before this time. " + time.description },
    to: { ...time, description: "No meeting after this time. " + time.description },
    minutes: { type: "integer", minimum: 5, maximum: 1440, description: "How long the meeting is." },
    step_minutes: { type: "integer", minimum: 1, maximum: 1440, description: "Meetings begin at multiples of this. Default 15." },
    hours: {
      type: "object",
      description: "Meetings lie between these hours of the day (UTC). Default 9 to 17.",
      properties: { from: { type: "number", minimum: 0, maximum: 24 }, to: { type: "number", minimum: 0, maximum: 24 } },
      required: ["from", "to"],
      additionalProperties: false,
    },
  },
  required: ["participants", "from", "to", "minutes"],
};

function findSlots(args) {
  const search = new Search(args);
  while (search.advance(args.max ?? 20)) task.checkpoint();
  return { slots: search.slots };
}

function arrangeMeeting(args) {
  const search = new Search(args);
  const messages = [];
  let stopped = false;
  while (!stopped && search.advance(CHOICES_MAX)) {
    task.progress(search.daysDone, search.days, `${search.slots.length} times so far`);
    if (!task.checkpoint().steeringPending) continue;
    for (const message of task.steering()) {
      stopped ||= steer(search, message);
      task.setStatus(`Day ${search.daysDone} of ${search.days}; noted: ${message}`);
      messages.push(message);
    }
  }
  const result = (more) => ({ arranged: false, participants: search.names(), messages, ...more });
  if (search.slots.length === 0) return result({ summary: "There is no time when everybody is free." });
  task.setStatus("Waiting for a choice");
  const answer = ask.form({ key: "slot", message: `When shall ${search.names().join(", ")} meet?`, schema: choice(search.slots) });
  if (answer.action !== "accept") return result({ summary: "No time was chosen." });
  const chosen = search.slots.find(({ start }) => start === answer.content.start);
  const topic = answer.content.topic ?? "Meeting";
  return result({ arranged: true, ...chosen, summary: `${topic}: ${chosen.start} with ${search.names().join(", ")}.` });
}

/** Does what a message says; whether it says to stop. */
function steer(search, message) {
  const [word, ...name] = message.trim().split(/\s+/);
  if (word.toLowerCase() === "without") search.without(name.join(" "));
  return word.toLowerCase() === "stop";
}

function choice(slots) {
  const oneOf = slots.map(({ start, end }) => ({ const: start, title: `${start} to ${end}` }));
  return {
    type: "object",
    properties: {
      start: { type: "string", description: "One of the times.", oneOf },
      topic: { type: "string", description: "What it is about.", maxLength: 200 },
    },
    required: ["start"],
  };
}

const KINDS = { "one-on-one": 30, "stand-up": 15, review: 60, workshop: 180 };

/** What a user picks from a menu, for models that then call the tools. */
function planMeeting({ kind, with: participants }) {
  const minutes = KINDS[kind.toLowerCase()];
  const length = minutes === undefined ? "Ask me how long it takes." : `It takes ${minutes} minutes.`;
  return `Plan a meeting (${kind}) with ${participants ?? "the people that I name next"}. ${length} Look up when everybody is busy, then \
arrange it with arrange_meeting.`;
}

export const { tools, prompts, completions } = definePlugin({
  tools: [
    {
      name: "find_slots",
      title: "Find slots",
      description: "Finds times when all participants are free.",
      input: { ...input, properties: { ...input.properties, max: { type: "integer", minimum: 1, maximum: 200 } } },
      output: { type: "object", properties: { slots: { type: "array", items: slot } }, required: ["slots"] },
      readOnly: true,
      idempotent: true,
      openWorld: false,
      run: findSlots,
    },
    {
      name: "arrange_meeting",
      title: "Arrange a meeting",
      description:
        "Finds times when all participants are free and lets the user choose one. As a task it takes messages: `without NAME` " +
        "leaves somebody out, `stop` ends the search with what it has.",
      input,
      output: {
        type: "object",
        properties: {
          arranged: { type: "boolean" },
          start: time,
          end: time,
          participants: { type: "array", items: { type: "string" } },
          messages: { type: "array", items: { type: "string" }, description: "The messages that arrived meanwhile." },
          summary: { type: "string" },
        },
        required: ["arranged", "participants", "messages", "summary"],
        additionalProperties: false,
      },
      task: "optional",
      destructive: false,
      openWorld: false,
      run: arrangeMeeting,
    },
  ],
  prompts: [
    {
      name: "plan_meeting",
      title: "Plan a meeting",
      description: "Asks for a meeting of some kind with some people.",
      arguments: [
        { name: "kind", description: "What kind of meeting it is, such as a review.", required: true },
        { name: "with", description: "Who takes part." },
      ],
      run: planMeeting,
      complete: { kind: (typed) => Object.keys(KINDS).filter((kind) => kind.startsWith(typed.toLowerCase())) },
    },
  ],
});
