// What the dashboard has. A feature that is off here must not be there: `missing.mjs` fails where one came without its checks.
export const FEATURES = {
  /** Pages change by themselves (`/live`, `live.js`). */
  live: false,
  /** `/tools`, with forms that call them. */
  tools: false,
  /** `/limits` of a requestor. */
  limits: false,
  /** Charts on the operators' first page. */
  charts: false,
  /** Many tasks at once. */
  bulk: false,
  /** Versions of plugins are switched on pages. */
  versions: false,
  /** `/denials`. */
  denials: false,
  /** `/audit`. */
  audit: false,
  /** `/tokens`. */
  tokens: false,
  /** `/hosts`, where a host is drained. */
  hosts: false,
  /** Messages to a running task. */
  steer: false,
  /** `/tenant`, what a lead sees of its tenant. */
  lead: false,
};
