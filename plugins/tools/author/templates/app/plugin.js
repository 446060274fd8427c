// Draws charts: an MCP App. A model calls `chart`, a client shows its view, and the view calls `smooth`.

import { app, definePlugin } from "bulkhead-plugin";

import { HTML } from "./view.js";

const VIEW = "ui://{{name}}/view.html";

/** @param {{ title: string, values: number[] }} series */
export function chart({ title, values }) {
  return { title, values, smallest: Math.min(...values), largest: Math.max(...values) };
}

/** @param {{ title: string, values: number[] }} series */
export function smooth({ title, values }) {
  const mean = (/** @type {number[]} */ some) => some.reduce((sum, value) => sum + value, 0) / some.length;
  return chart({ title, values: values.map((_, at) => mean(values.slice(Math.max(at - 1, 0), at + 2))) });
}

const title = { type: "string", description: "What the values are." };
const values = { type: "array", items: { type: "number" }, minItems: 1, maxItems: 1000, description: "From left to right." };
const series = { type: "object", properties: { title, values }, required: ["title", "values"] };
const drawn = {
  type: "object",
  properties: {
    title,
    values,
    smallest: { type: "number", description: "The lowest point of the chart." },
    largest: { type: "number", description: "The highest point of the chart." },
  },
  required: ["title", "values", "smallest", "largest"],
};

export const { tools, resources } = definePlugin({
  tools: [
    {
      name: "chart",
      description:
        "Draws a line chart of some values, where the client shows views, and returns them with the smallest and the largest.",
      input: series,
      output: drawn,
      readOnly: true,
      openWorld: false,
      meta: { ui: { resourceUri: VIEW } },
      run: chart,
    },
    {
      name: "smooth",
      description: "Returns the chart with each value replaced by the mean of itself and its neighbours.",
      input: series,
      output: drawn,
      readOnly: true,
      openWorld: false,
      meta: { ui: { visibility: ["app"] } },
      run: smooth,
    },
  ],
  // What the view may reach is said here, such as csp: { connectDomains: ["https://api.example.com"] }.
  resources: [app({ uri: VIEW, name: "chart", html: HTML })],
});
