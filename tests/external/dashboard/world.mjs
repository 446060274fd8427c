// What is on the host when the pages are opened: people of several tenants, and a task in each state.
import { Client } from "./host.mjs";
import { ADDRESS, PAYLOADS, TEXT, hostileSchema } from "./payloads.mjs";

export const PLUGINS = [
  { name: "text" },
  { name: "primes" },
  { name: "desk" },
  { name: "probe" },
  { name: "chart" },
  { name: "markup", file: `"><img src=x onerror=alert('file')>.wasm` },
];

/** More of the configuration. */
export const SECTIONS = `
[[auth.scope]]
name = "lead"
tools = ["*"]
tasks = true
tenant = true
tenant_control = true
`;

const titled = (values) => Object.entries(values).map(([value, title]) => ({ const: value, title }));

/** A form with a field of every type and format. */
export const FORM = {
  type: "object",
  properties: {
    name: { type: "string", title: "Name", description: "As in your passport.", minLength: 1, maxLength: 40 },
    mail: { type: "string", title: "E-mail", format: "email" },
    page: { type: "string", title: "Web page", format: "uri" },
    day: { type: "string", title: "Day", format: "date" },
    moment: { type: "string", title: "Moment", format: "date-time" },
    travellers: { type: "integer", title: "Travellers", minimum: 1, maximum: 9, default: 2 },
    budget: { type: "number", title: "Budget", minimum: 0 },
    insured: { type: "boolean", title: "Insured", default: true },
    class: { type: "string", title: "Class", enum: ["economy", "business"], enumNames: ["Economy", "Business"] },
    seat: { type: "string", title: "Seat", oneOf: titled({ window: "At the window", aisle: "At the aisle" }) },
    meals: { type: "array", title: "Meals", items: { type: "string", enum: ["breakfast", "dinner"] } },
    extras: { type: "array", title: "Extras", items: { anyOf: titled({ bike: "A bicycle", dog: "A dog" }) } },
  },
  required: ["name", "class"],
};

const HOUR = { ms: 3_600_000 };
const GLANCE = { message: "Which journey shall I book?", schema: FORM };

/** People who log in, clients of theirs, and the ids of tasks by what they are. */
export async function makeWorld(host, viewers, issuer) {
  const tokens = {
    anna: await host.token("anna", "acme"),
    ben: await host.token("ben", "globex"),
    mallory: await host.token("mallory", "dark"),
  };
  const clients = {};
  for (const [name, { token }] of Object.entries(tokens)) {
    await viewers.logIn(name, token);
    clients[name] = await Client.connect(host, token);
  }
  await viewers.logIn("operator", host.adminToken);
  await viewers.logIn("lead", (await host.token("lena", "acme", "--scope", "lead")).token);
  await viewers.logIn("eve", (await host.token("eve", "dark", "--scope", "lead")).token);
  const { anna, ben, mallory } = clients;
  const tasks = {
    form: await anna.taskUntil("input_required", "ask_form", GLANCE),
    visit: await anna.taskUntil("input_required", "ask_url", { url: "https://example.com/a?b=c" }),
    roots: await anna.taskUntil("input_required", "ask_roots"),
    running: await anna.taskUntil("working", "wait", HOUR),
    paused: await anna.taskUntil("working", "wait", HOUR),
    cancelled: await anna.taskUntil("working", "wait", HOUR),
    done: await anna.taskUntil("completed", "contents"),
    toolError: await anna.taskUntil("failed", "fail", { way: "tool" }),
    failed: await anna.taskUntil("failed", "fail", { way: "custom" }),
    ofBen: await ben.taskUntil("input_required", "book_trip"),
  };
  await host.command("tasks", "pause", tasks.paused, "--message", "The disk is being changed");
  await anna.cancel(tasks.cancelled);
  const hostile = {
    saying: await mallory.taskUntil("working", "say", { text: TEXT, wait_ms: HOUR.ms }),
    said: await mallory.taskUntil("completed", "say", { text: TEXT }),
    long: await mallory.taskUntil("completed", "say", { text: "x<b>".repeat(250_000), text_alone: true }),
    asking: await mallory.taskUntil("input_required", "ask_form", { message: TEXT, schema: hostileSchema() }),
    sending: await mallory.taskUntil("input_required", "ask_visit", { message: TEXT, url: ADDRESS }),
    failed: await mallory.taskUntil("failed", "fail_with", { text: TEXT }),
    paused: await mallory.taskUntil("working", "say", { text: TEXT, wait_ms: HOUR.ms }),
  };
  await host.command("tasks", "pause", hostile.paused, "--message", PAYLOADS.slice(0, 5).join(" "));
  const version = async (plugin) => (await host.command("plugin", "versions", plugin)).versions[0].version;
  const versions = { desk: await version("desk"), markup: await version("markup") };
  return { host, viewers, issuer, tokens, clients, tasks, hostile, versions, link: await host.link() };
}
