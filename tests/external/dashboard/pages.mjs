// The pages that there are: every check of all pages goes through this table. A new page is one more line.
//
// `path` may need what is on the host (`world.mjs`), and `heading` is what the page is called. `like` names another page that is made
// alike, of the same parts: a gate opens that one in every way, and this one in one way.

import assert from "node:assert/strict";

const NOBODY = [
  { name: "login", path: "/login", heading: "Log in" },
  { name: "login by a link", path: ({ link }) => link, heading: "Log in as an operator" },
];

const REQUESTOR = [
  { name: "first page", path: "/", heading: "My tasks", like: "my tasks" },
  { name: "my tasks", path: "/tasks", heading: "My tasks" },
  { name: "my tasks, filtered", path: "/tasks?status=running&tool=wait", heading: "My tasks", like: "my tasks" },
  { name: "my tasks, none", path: "/tasks?tool=none", heading: "My tasks", like: "my tasks" },
  { name: "task that asks", path: ({ tasks }) => `/tasks/${tasks.form}`, heading: "ask_form" },
  { name: "task that sends to a page", path: ({ tasks }) => `/tasks/${tasks.visit}`, heading: "ask_url" },
  { name: "task that asks an MCP client", path: ({ tasks }) => `/tasks/${tasks.roots}`, heading: "ask_roots", like: "task that asks" },
  { name: "running task", path: ({ tasks }) => `/tasks/${tasks.running}`, heading: "wait" },
  { name: "paused task", path: ({ tasks }) => `/tasks/${tasks.paused}`, heading: "wait", like: "running task" },
  { name: "cancelled task", path: ({ tasks }) => `/tasks/${tasks.cancelled}`, heading: "wait", like: "finished task" },
  { name: "finished task", path: ({ tasks }) => `/tasks/${tasks.done}`, heading: "contents" },
  { name: "image of a result", path: ({ tasks }) => `/tasks/${tasks.done}/image/1`, heading: "An image of a result" },
  { name: "task with a tool's error", path: ({ tasks }) => `/tasks/${tasks.toolError}`, heading: "fail", like: "finished task" },
  { name: "failed task", path: ({ tasks }) => `/tasks/${tasks.failed}`, heading: "fail", like: "finished task" },
  { name: "nothing", path: "/nothing", heading: /./ },
  { name: "tools", path: "/tools", heading: "Tools" },
  { name: "tool", path: "/tools/book_trip", heading: /trip/i },
  { name: "tool with a view", path: "/tools/chart", heading: "chart", like: "tool" },
  { name: "resources", path: "/resources", heading: "Resources" },
  { name: "prompts", path: "/prompts", heading: "Prompts" },
  { name: "my limits", path: "/limits", heading: /limits/i },
];

const OPERATOR = [
  { name: "overview", path: "/", heading: "Overview" },
  { name: "tasks", path: "/tasks", heading: "Tasks" },
  { name: "tasks, filtered", path: "/tasks?status=input_required&tenant=acme", heading: "Tasks", like: "tasks" },
  { name: "task that asks", path: ({ tasks }) => `/tasks/${tasks.form}`, heading: "ask_form", like: "paused task" },
  { name: "paused task", path: ({ tasks }) => `/tasks/${tasks.paused}`, heading: "wait" },
  { name: "finished task", path: ({ tasks }) => `/tasks/${tasks.done}`, heading: "contents", like: "paused task" },
  { name: "plugins", path: "/plugins", heading: "Plugins" },
  { name: "plugin", path: "/plugins/desk", heading: "Plugin desk" },
  { name: "tool of a plugin", path: "/plugins/desk/tools/book_trip", heading: /trip/i },
  { name: "tenants", path: "/tenants", heading: "Tenants" },
  { name: "tenant", path: "/tenants/acme", heading: "Tenant acme" },
  { name: "nothing", path: "/nothing", heading: /./, like: "nothing of anna" },
  { name: "denials", path: "/denials", heading: /denials/i },
  { name: "audit log", path: "/audit", heading: /audit/i },
  { name: "tokens", path: "/tokens", heading: /tokens/i },
  { name: "host", path: "/hosts", heading: "Host" },
  { name: "changes of a version", path: ({ versions }) => `/plugins/desk/${versions.desk}/changes`, heading: /^desk/ },
];

const LEAD = [
  { name: "my tenant", path: "/tenant", heading: "Tenant" },
  { name: "tasks of the tenant", path: "/tenant/tasks", heading: /tasks/i },
  { name: "task of the tenant", path: ({ tasks }) => `/tenant/tasks/${tasks.running}`, heading: "wait" },
  { name: "plugins of the tenant", path: "/tenant/plugins", heading: /plugins/i },
  { name: "denials of the tenant", path: "/tenant/denials", heading: /denials/i },
  { name: "audit log of the tenant", path: "/tenant/audit", heading: /audit/i },
];

/** Pages on which a hostile plugin says something. */
const OF_REQUESTOR = [
  { name: "hostile tasks", path: "/tasks", heading: "My tasks" },
  ...ofTasks(["saying", "said", "long", "asking", "sending", "failed", "paused"]),
  { name: "hostile tools", path: "/tools", heading: "Tools" },
  { name: "hostile tool", path: "/tools/say", heading: "say" },
  { name: "hostile tool that asks", path: "/tools/ask_form", heading: "ask_form" },
];
const OF_LEAD = [
  { name: "hostile tenant", path: "/tenant", heading: "Tenant" },
  { name: "hostile tasks of the tenant", path: "/tenant/tasks", heading: /tasks/i },
  { name: "hostile plugins of the tenant", path: "/tenant/plugins", heading: /plugins/i },
  { name: "hostile denials of the tenant", path: "/tenant/denials", heading: /denials/i },
  { name: "hostile audit log of the tenant", path: "/tenant/audit", heading: /audit/i },
  { name: "hostile task of the tenant", path: ({ hostile }) => `/tenant/tasks/${hostile.failed}`, heading: "fail_with" },
];
const OF_OPERATOR = [
  { name: "hostile overview", path: "/", heading: "Overview" },
  { name: "hostile tasks", path: "/tasks?tenant=dark", heading: "Tasks" },
  ...ofTasks(["saying", "asking", "failed", "paused"]),
  { name: "hostile plugins", path: "/plugins", heading: "Plugins" },
  { name: "hostile plugin", path: "/plugins/markup", heading: "Plugin markup" },
  {
    name: "hostile changes of a version",
    path: ({ versions }) => `/plugins/markup/${versions.markup}/changes`,
    heading: /^markup/,
  },
  { name: "hostile denials", path: "/denials", heading: /denials/i },
  { name: "hostile audit log", path: "/audit", heading: /audit/i },
  { name: "hostile tokens", path: "/tokens", heading: /tokens/i },
];

function ofTasks(names) {
  return names.map((name) => ({
    name: `hostile task, ${name}`,
    path: ({ hostile }) => `/tasks/${hostile[name]}`,
    heading: /^(say|fail_with|ask_form|ask_visit)$/,
  }));
}

const withViewer = (viewer, pages) => pages.map((page) => ({ ...page, viewer }));

export const PAGES = [
  ...withViewer("nobody", NOBODY),
  ...withViewer("anna", REQUESTOR),
  ...withViewer("lead", LEAD),
  ...withViewer("operator", OPERATOR),
];
export const HOSTILE_PAGES = [
  ...withViewer("mallory", OF_REQUESTOR),
  ...withViewer("eve", OF_LEAD),
  ...withViewer("operator", OF_OPERATOR),
];

/** One page of each kind. */
export const ONE_OF_EACH_KIND = PAGES.filter((page) => !page.like);

/** Where a page is. */
export function placeOf(page, world) {
  return typeof page.path === "string" ? page.path : page.path(world);
}

/** How a page is called in what is printed. */
export function titleOf(page) {
  return `${page.name} of ${page.viewer}`;
}

for (const { like } of PAGES.filter((page) => page.like)) {
  assert.ok(ONE_OF_EACH_KIND.some((one) => [one.name, titleOf(one)].includes(like)), `no page is opened in every way for ${like}`);
}
