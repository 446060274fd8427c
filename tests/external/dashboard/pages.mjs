// The pages that there are: every check of all pages goes through this table. A page that comes later is one more line.
//
// `path` may need what is on the host (`world.mjs`), `heading` is what the page is called, and `feature` names the switch in
// `features.mjs` that says whether the page is there.
import { FEATURES } from "./features.mjs";

const NOBODY = [
  { name: "login", path: "/login", heading: "Log in" },
  { name: "login by a link", path: ({ link }) => link, heading: "Log in as an operator" },
];

const REQUESTOR = [
  { name: "first page", path: "/", heading: "My tasks" },
  { name: "my tasks", path: "/tasks", heading: "My tasks" },
  { name: "my tasks, filtered", path: "/tasks?status=running&tool=wait", heading: "My tasks" },
  { name: "my tasks, none", path: "/tasks?tool=none", heading: "My tasks" },
  { name: "task that asks", path: ({ tasks }) => `/tasks/${tasks.form}`, heading: "ask_form" },
  { name: "task that sends to a page", path: ({ tasks }) => `/tasks/${tasks.visit}`, heading: "ask_url" },
  { name: "task that asks an MCP client", path: ({ tasks }) => `/tasks/${tasks.roots}`, heading: "ask_roots" },
  { name: "running task", path: ({ tasks }) => `/tasks/${tasks.running}`, heading: "wait" },
  { name: "paused task", path: ({ tasks }) => `/tasks/${tasks.paused}`, heading: "wait" },
  { name: "cancelled task", path: ({ tasks }) => `/tasks/${tasks.cancelled}`, heading: "wait" },
  { name: "finished task", path: ({ tasks }) => `/tasks/${tasks.done}`, heading: "contents" },
  { name: "task with a tool's error", path: ({ tasks }) => `/tasks/${tasks.toolError}`, heading: "fail" },
  { name: "failed task", path: ({ tasks }) => `/tasks/${tasks.failed}`, heading: "fail" },
  { name: "nothing", path: "/nothing", heading: /./ },
  { name: "tools", path: "/tools", heading: "Tools", feature: "tools" },
  { name: "tool", path: "/tools/book_trip", heading: /trip/i, feature: "tools" },
  { name: "my limits", path: "/limits", heading: /limits/i, feature: "limits" },
];

const OPERATOR = [
  { name: "overview", path: "/", heading: "Overview" },
  { name: "tasks", path: "/tasks", heading: "Tasks" },
  { name: "tasks, filtered", path: "/tasks?status=input_required&tenant=acme", heading: "Tasks" },
  { name: "task that asks", path: ({ tasks }) => `/tasks/${tasks.form}`, heading: "ask_form" },
  { name: "paused task", path: ({ tasks }) => `/tasks/${tasks.paused}`, heading: "wait" },
  { name: "finished task", path: ({ tasks }) => `/tasks/${tasks.done}`, heading: "contents" },
  { name: "plugins", path: "/plugins", heading: "Plugins" },
  { name: "plugin", path: "/plugins/desk", heading: "Plugin desk" },
  { name: "tenants", path: "/tenants", heading: "Tenants" },
  { name: "tenant", path: "/tenants/acme", heading: "Tenant acme" },
  { name: "nothing", path: "/nothing", heading: /./ },
  { name: "denials", path: "/denials", heading: /denials/i, feature: "denials" },
  { name: "audit log", path: "/audit", heading: /audit/i, feature: "audit" },
  { name: "tokens", path: "/tokens", heading: /tokens/i, feature: "tokens" },
  { name: "host", path: "/hosts", heading: "Host", feature: "hosts" },
  { name: "changes of a version", path: ({ versions }) => `/plugins/desk/${versions.desk}/changes`, heading: /^desk/, feature: "versions" },
];

const LEAD = [
  { name: "my tenant", path: "/tenant", heading: "Tenant", feature: "lead" },
  { name: "tasks of the tenant", path: "/tenant/tasks", heading: /tasks/i, feature: "lead" },
  { name: "task of the tenant", path: ({ tasks }) => `/tenant/tasks/${tasks.running}`, heading: "wait", feature: "lead" },
];

/** Pages on which a hostile plugin says something. */
const OF_REQUESTOR = [
  { name: "hostile tasks", path: "/tasks", heading: "My tasks" },
  ...ofTasks(["saying", "said", "long", "asking", "sending", "failed", "paused"]),
  { name: "hostile tools", path: "/tools", heading: "Tools", feature: "tools" },
  { name: "hostile tool", path: "/tools/say", heading: /./, feature: "tools" },
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
    feature: "versions",
  },
  { name: "hostile denials", path: "/denials", heading: /denials/i, feature: "denials" },
  { name: "hostile audit log", path: "/audit", heading: /audit/i, feature: "audit" },
  { name: "hostile tokens", path: "/tokens", heading: /tokens/i, feature: "tokens" },
];

function ofTasks(names) {
  return names.map((name) => ({
    name: `hostile task, ${name}`,
    path: ({ hostile }) => `/tasks/${hostile[name]}`,
    heading: /^(say|fail_with|ask_form|ask_visit)$/,
  }));
}

const withViewer = (viewer, pages) => pages.map((page) => ({ ...page, viewer }));
const isThere = ({ feature }) => !feature || FEATURES[feature];

const ALL = [
  ...withViewer("nobody", NOBODY),
  ...withViewer("anna", REQUESTOR),
  ...withViewer("lead", LEAD),
  ...withViewer("operator", OPERATOR),
];
const ALL_HOSTILE = [...withViewer("mallory", OF_REQUESTOR), ...withViewer("operator", OF_OPERATOR)];

export const PAGES = ALL.filter(isThere);
export const HOSTILE_PAGES = ALL_HOSTILE.filter(isThere);
/** Pages of features that are not there yet. */
export const MISSING_PAGES = ALL.filter((page) => !isThere(page));

/** Where a page is. */
export function placeOf(page, world) {
  return typeof page.path === "string" ? page.path : page.path(world);
}

/** How a page is called in what is printed. */
export function titleOf(page) {
  return `${page.name} of ${page.viewer}`;
}
