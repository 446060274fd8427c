// What a tool takes and gives back: JSON Schemas that are written down, and those of libraries such as zod, whose schema objects
// also check and transform values (standardschema.dev).

import { Output } from "./output.js";
import { ToolError } from "./errors.js";

const DIALECT = "draft-2020-12";

/** The JSON Schema of a tool's `input` or `output`, which is `side`; `TypeError` for what has none. */
export function jsonSchema(tool, side) {
  const schema = tool[side];
  if (schema === undefined) return undefined;
  const what = `tool ${tool.name}: ${side}`;
  if (!isStandard(schema)) {
    const loose = Object.keys(schema).find((name) => isStandard(schema[name]));
    if (loose !== undefined) throw new TypeError(`${what} has a schema as its ${loose}: put an object schema around, such as z.object({ … })`);
    return schema;
  }
  const { $schema: _, ...said } = converted(schema, side, what);
  // A union of objects does not say that it takes objects; MCP wants it said.
  const json = { type: "object", ...said };
  if (json.type !== "object") throw new TypeError(`${what} is no object but ${JSON.stringify(json.type)}: put an object schema around`);
  return json;
}

function converted(schema, side, what) {
  // It is a JSON Schema already, which `z.toJSONSchema` made and which checks values, too.
  if (typeof schema.$schema === "string") return schema;
  const { vendor, jsonSchema } = schema["~standard"];
  try {
    if (typeof jsonSchema?.[side] === "function") return jsonSchema[side]({ target: DIALECT });
    if (typeof schema.toJSONSchema === "function") return schema.toJSONSchema({ io: side, target: DIALECT });
  } catch (error) {
    throw new TypeError(`${what} cannot be a JSON Schema: ${error.message}`);
  }
  throw new TypeError(
    `${what} is a schema of ${vendor} that gives no JSON Schema: upgrade zod to 4.2, wrap it (toStandardJsonSchema of ` +
      `@valibot/to-json-schema), or pass a JSON Schema (z.toJSONSchema(…))`,
  );
}

/** The arguments as `run` gets them. The host has checked the JSON Schema; this is what one cannot say. */
export async function received(tool, given) {
  return isStandard(tool.input) ? fitting(tool.input, given, "these arguments do not fit") : given;
}

/** What `run` returned as it goes on to the client. */
export async function returned(tool, value) {
  if (!isStandard(tool.output) || value instanceof Output) return value;
  return fitting(tool.output, value, "what the tool returned does not fit");
}

async function fitting(schema, value, refusal) {
  const result = await schema["~standard"].validate(value);
  if (result.issues) throw new ToolError(`${refusal}: ${result.issues.map(told).join("; ")}`);
  return result.value;
}

function told({ path = [], message }) {
  const names = path.map((segment) => String(typeof segment === "object" ? segment.key : segment));
  return `/${names.join("/")}: ${message}`;
}

/** ArkType's are functions. */
function isStandard(schema) {
  return (typeof schema === "function" || (typeof schema === "object" && schema !== null)) && "~standard" in schema;
}
