/**
 * Write tools for Bulkhead, the WebAssembly plugin host for MCP.
 *
 * A plugin is lists of plain objects: tools, and where it wants resources and prompts. What there is of them is exported:
 *
 * ```js
 * import { definePlugin } from "bulkhead-plugin";
 *
 * export const { tools } = definePlugin({
 *   tools: [
 *     {
 *       name: "greet",
 *       description: "Greets someone by name.",
 *       input: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
 *       readOnly: true,
 *       run: ({ name }) => `Hello, ${name}!`,
 *     },
 *   ],
 * });
 * ```
 *
 * `bulkhead plugin build` makes a component of it.
 *
 * What `run` returns (or resolves to) decides what the client sees: a string is one text block; an object is structured
 * content, and the same JSON as text; an `Output` is anything else, such as images. A `ToolError` (and any other error) is a
 * failed result that a model can read and react to; a `CallError` is a JSON-RPC error.
 */

/** What JSON can hold. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** A JSON Schema 2020-12 whose root says `"type": "object"`. */
export type Schema = { type: "object"; [keyword: string]: unknown };

/**
 * A schema object of a library that follows Standard Schema and gives JSON Schema: zod from 4.2, ArkType, and Valibot with
 * `toStandardJsonSchema`. As `input` it is listed by what it takes, and `run` gets what it makes of that. As `output` it is listed
 * by what it makes of what `run` returns.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** The value that a schema made, or what is wrong. */
export type Validated<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string }[] };

/** What `run` gets: what the schema object says, or with a JSON Schema what the author says. */
export type Received<Input> = Input extends { readonly "~standard": { readonly types?: infer Types } }
  ? NonNullable<Types> extends { readonly output: infer Value }
    ? Value
    : any
  : any;

/** A tool whose arguments have the type that its `input` says. */
export type ToolOf<Input> = Omit<Tool, "input" | "run"> & {
  input?: Input & (Schema | StandardSchema<any, any>);
  run(args: Received<Input>): unknown;
};

/**
 * What the host calls, to be exported under the same names: `export const { tools, prompts } = definePlugin(…)`. There is
 * `resources` where the plugin has any, `prompts` likewise, and `completions` where one of them has `complete`.
 */
export interface Exported {
  tools: { listTools(): unknown[]; callTool(name: string, json: string): Promise<unknown> };
  resources: {
    listTemplates(): unknown[];
    listResources(cursor?: string): unknown;
    readResource(uri: string): Promise<unknown[]>;
  };
  prompts: { listPrompts(): unknown[]; getPrompt(name: string, given: [string, string][]): Promise<unknown> };
  completions: { complete(reference: unknown, argument: unknown): Promise<unknown> };
}

/** One tool. */
export interface Tool<Arguments = any> {
  /** 1 to 64 characters of `[A-Za-z0-9_.-]`. */
  name: string;
  /** A name for people. */
  title?: string;
  /** What a model reads to decide whether to call the tool: say what it does and what comes back. */
  description: string;
  /** What clients may send; the host checks it. Names that it does not have are refused unless it says otherwise. */
  input?: Schema | StandardSchema<any, Arguments>;
  /** What is in the structured content; the host checks it. */
  output?: Schema | StandardSchema<any, any>;
  /** Whether a call may become a task: `"optional"` for everything that may take longer than a second. */
  task?: "forbidden" | "optional" | "required";
  /** Hint: the tool changes nothing. */
  readOnly?: boolean;
  /** Hint: the tool may delete or overwrite something. */
  destructive?: boolean;
  /** Hint: a second call with the same arguments changes nothing more. Only then may the host run a call again after a restart. */
  idempotent?: boolean;
  /** Hint: the tool deals with an open set of outside things, as a web search does. */
  openWorld?: boolean;
  /** Images beside the name. */
  icons?: Icon[];
  /** The tool's `_meta`. */
  meta?: { [key: string]: Json };
  /** Runs the tool on the arguments object. */
  run(args: Arguments): unknown;
}

/** An image that a client may show beside a name. `src` is an `https:` or `data:` URI. */
export interface Icon {
  src: string;
  mimeType?: string;
  sizes?: string[];
  theme?: "light" | "dark";
}

/** What clients are told of a resource or a prompt. */
export interface Told {
  /** For people and models; a prompt's has the grammar of tool names and is its own. */
  name: string;
  /** A name for people. */
  title?: string;
  description?: string;
  /** Images beside the name. */
  icons?: Icon[];
  /** Its `_meta`, that of a resource in the list and on what is read. */
  meta?: { [key: string]: Json };
}

/** Suggests values, best first, for what was typed so far; `decided` has the other arguments that are known already. */
export type Suggest = (typed: string, decided: { [argument: string]: string }) => string[] | Promise<string[]>;

/** Data that clients read by its URI. A string is text, a `Uint8Array` is data, anything else is JSON. */
export interface Resource extends Told {
  uri: string;
  mimeType?: string;
  /** Bytes. */
  size?: number;
  annotations?: Annotations;
  read(): unknown;
}

/**
 * The view of an MCP App: a page of HTML that clients show in a frame. Its URI begins with `ui://`, and a tool names it as
 * `meta: { ui: { resourceUri: "ui://…" } }`. What the page may reach is part of what an operator accepts; without `csp` that is nothing.
 */
export interface App extends Told {
  uri: string;
  html: string | (() => string | Promise<string>);
  /** Domains, for requests, for scripts, styles, images and fonts, for frames, and as the base of links. */
  csp?: { connectDomains?: string[]; resourceDomains?: string[]; frameDomains?: string[]; baseUriDomains?: string[] };
  permissions?: ("camera" | "microphone" | "geolocation" | "clipboardWrite")[];
}

/** The resource of a view. */
export function app(view: App): Resource;

/**
 * A family of resources. `{city}` in the template stands for one or more characters without `/`, `?` and `#`, `{+path}` for any;
 * they are the members of what `read` gets.
 */
export interface ResourceTemplate extends Told {
  uriTemplate: string;
  mimeType?: string;
  annotations?: Annotations;
  read(variables: { [name: string]: string }): unknown;
  complete?: { [variable: string]: Suggest };
}

/** One message of a prompt. */
export type Message = { role: "user" | "assistant"; annotations?: Annotations } & (
  | { text: string }
  | { image: Uint8Array; mimeType: string }
  | { audio: Uint8Array; mimeType: string }
  | { link: string; name: string; title?: string; description?: string; mimeType?: string }
  | { resource: string; body: string | Uint8Array; mimeType?: string }
);

/** A prompt that clients offer to their users. */
export interface Prompt extends Told {
  description: string;
  arguments?: { name: string; title?: string; description?: string; required?: boolean }[];
  /** Fills it in: what the user says, or several messages. */
  run(given: { [argument: string]: string }): string | Message[] | Promise<string | Message[]>;
  complete?: { [argument: string]: Suggest };
}

/** Makes a plugin of what it offers. */
export function definePlugin<const Inputs extends readonly unknown[] = []>(plugin: {
  tools?: { [At in keyof Inputs]: ToolOf<Inputs[At]> };
  resources?: (Resource | ResourceTemplate)[];
  prompts?: Prompt[];
}): Exported;

/** Hints about a piece of content. */
export interface Annotations {
  audience?: ("user" | "assistant")[];
  /** From 0 (optional) to 1 (effectively required). */
  priority?: number;
  /** ISO 8601. */
  lastModified?: string;
}

/** A result that is more than one text or one object. Each method adds to it and gives it back. */
export class Output {
  text(text: string, annotations?: Annotations): this;
  image(data: Uint8Array, mimeType: string, annotations?: Annotations): this;
  audio(data: Uint8Array, mimeType: string, annotations?: Annotations): this;
  /** A pointer to a resource that the client may read later. */
  link(uri: string, name: string, more?: { title?: string; description?: string; mimeType?: string }): this;
  /** A resource with its contents. */
  resource(uri: string, body: string | Uint8Array, mimeType?: string): this;
  /** Sets the structured content. */
  structured(value: object): this;
  /** Adds an entry of the result's `_meta`. */
  meta(key: string, value: Json): this;
  /** Says that the tool did not succeed; the content says why. */
  failed(): this;
}

/** The tool ran and did not succeed. The client gets a failed result (`isError`) with this text. */
export class ToolError extends Error {}

/** The call itself could not be made. The client gets a JSON-RPC error. */
export class CallError extends Error {
  private constructor();
  /** The request is wrong in a way that the schema cannot say. */
  static invalidParams(message: string): CallError;
  /** What the request names does not exist. */
  static notFound(message: string): CallError;
  /** Something broke. The text goes to the operator's log; the client sees a fixed one. */
  static internal(message: string): CallError;
  /** The call needs something that the client did not declare. */
  static missingCapability(feature: ClientFeature): CallError;
  /** A JSON-RPC error with a code of your own, outside -32768 to -32000. */
  static custom(code: number, message: string, data?: Json): CallError;
}

/** There is no answer. One that nobody catches does the right thing. */
export class AskError extends Error {
  readonly reason: "unsupported" | "invalid" | "unreachable" | "refused" | "not-accepted" | "cancelled";
  readonly feature?: ClientFeature;
}

/** Nothing was kept or found. A tool that can do without goes on when it is denied. */
export class KvError extends ToolError {
  readonly reason: "denied" | "quota" | "too-large" | "invalid" | "unavailable";
}

/** The call was cancelled; what `task.checkpoint()` throws to leave the tool. */
export class Cancelled extends Error {}

export type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";
export type ClientFeature =
  | "elicitation-form"
  | "elicitation-url"
  | "sampling"
  | "sampling-tools"
  | "sampling-context"
  | "roots"
  | "tasks";

/** What has happened since the last look. */
export interface Signals {
  /** The call was cancelled: tidy up and return; the result no longer matters. */
  cancelled: boolean;
  /** `task.steering()` would return at least one message. */
  steeringPending: boolean;
}

/** Reporting, waiting and stopping. None of it fails because the client cannot show what was said. */
export const task: {
  /** Says how far the work is, in any unit that grows. Report as often as is convenient. */
  progress(done: number, total?: number, message?: string): void;
  /** Says in one line what is happening now; shown with the task's status. */
  setStatus(message: string): void;
  /** Sends a log record: a text, or anything that JSON can hold. */
  log(level: LogLevel, data: Json, logger?: string): void;
  /** Becomes a task now, where client and tool allow it; else nothing happens. */
  detach(): void;
  /** Takes the messages that the client sent to the running task, oldest first, each once. */
  steering(): string[];
  /** Waits without using CPU time. */
  sleep(ms: number): void;
  /** Looks whether the call was cancelled and whether messages wait. Cheap; call it in loops. */
  safePoint(): Signals;
  /** Like `safePoint`, for tools that have nothing to tidy up: throws `Cancelled` once the call is. */
  checkpoint(): Signals;
  /**
   * Writes down where the work is, in at most 256 KiB, so that a task whose host stops need not begin at its begin: if the tool
   * does nothing but compute afterwards, it is called anew, and `restored` gives the state. Save as often as is convenient, and
   * after each effect; what comes too soon after another is passed over. In a call that is no task this does nothing. Throws a
   * `RangeError` if the state is too large.
   */
  save(state: Uint8Array | string): void;
  /** The state that the tool was called anew with; none: it begins at its begin. Look before you start. */
  restored(): Uint8Array | undefined;
  saveJson(state: Json): void;
  /** The state that was saved as JSON, or the fallback. */
  restoredJson<T = Json | undefined>(fallback?: T): T;
  listsChanged(kind: "tools" | "resources" | "prompts"): void;
  resourceUpdated(uri: string): void;
};

/** What is known about the call that is running. */
export const call: {
  /** An id of this call, for logs; unguessable, never shown to anyone else. */
  id(): string;
  /** The task's id, once the call is a task. */
  taskId(): string | undefined;
  /** 1 for the first run, 2 for the run after a restart of the host, and so on. */
  attempt(): number;
  /** The same for every attempt of the same call: pass it to services that deduplicate. */
  idempotencyKey(): string;
  /** Who is calling, as a random id that is the same for every call of one requestor; never a name. */
  requestorId(): string;
  /** Whether the client can do this. Look before asking where the tool can do without. */
  clientSupports(feature: ClientFeature): boolean;
  /** What the client says of an extension of MCP, as far as the host knows that extension. */
  clientExtension(name: string): Json | undefined;
  /** Whether the client shows views (MCP Apps). Where it does not, its user sees the text of a result alone. */
  clientShowsViews(): boolean;
  /** The lowest level that the client wants to see. */
  wantedLogLevel(): LogLevel | undefined;
  /** Ids of earlier tasks of the same requestor that this call continues or replaces. */
  relatedTasks(): string[];
};

/** The operator's settings for this plugin: `[[plugin]] config = { … }`. Never secrets: those do not enter a guest. */
export const config: {
  /** One setting, or the fallback, whose type it must have. */
  get<T = Json | undefined>(key: string, fallback?: T): T;
  all(): { [key: string]: Json };
};

/**
 * Bytes that outlive a call, under keys of the plugin's own (1 to 256 bytes). What is kept belongs to the plugin's name and to
 * the tenant that calls: every version of the plugin finds it, nobody else does. The operator grants it (`[plugin.kv]`), with
 * limits. Of two calls that write one key the later one wins: there is no lock. Everything here throws `KvError`.
 */
export const kv: {
  get(key: string): Uint8Array | undefined;
  /** Keeps a value in the place of the one before; it is on disk when this returns. With `ttlMs` it goes away by itself. */
  set(key: string, value: Uint8Array | string, options?: { ttlMs?: number }): void;
  getJson<T = Json | undefined>(key: string, fallback?: T): T;
  setJson(key: string, value: Json, options?: { ttlMs?: number }): void;
  /** Forgets a key; one that is not there is fine. */
  delete(key: string): void;
  /** Every key that begins with `prefix`, in the order of their bytes. */
  keys(prefix?: string): string[];
};

/** What the user did with a form or a URL. */
export interface Answer<T> {
  readonly action: "accept" | "decline" | "cancel";
  /** What was filled in, with `accept` of a form; the host has checked it. */
  readonly content: T | undefined;
  /** The content, where a tool can only go on with one; else throws. */
  accepted(): T;
}

/** A form with flat, primitive fields. Never ask for a password or any other secret this way. */
export interface Form {
  key: string;
  message: string;
  schema: Schema;
}

/** A page to visit, for everything that must not pass through the client: `https:`, without secrets in it. */
export interface Url {
  key: string;
  message: string;
  url: string;
}

/** A text for the client's model; any other member of the params of `sampling/createMessage` may stand beside. */
export interface Sampling {
  key: string;
  text: string;
  maxTokens: number;
  system?: string;
  [parameter: string]: unknown;
}

/** What the client's model said. */
export interface Completion {
  /** The text blocks, joined. */
  text: string;
  model: string;
  /** Why it stopped, such as `endTurn` or `maxTokens`. */
  stopReason?: string;
  /** The whole result object. */
  result: { [key: string]: Json };
}

/** One root folder of the client. */
export interface Root {
  uri: string;
  name?: string;
}

/**
 * Questions: to the user through the client, and to the client's model.
 *
 * A question waits for its answer without using CPU time, for as long as the host allows. Its key names it to the client
 * (1 to 64 characters of `[A-Za-z0-9_.-]`); give each question of a tool a key of its own.
 *
 * A task waits where it stands. A plain call of a client of MCP 2026-07-28 may be **run again from the start** when its answers
 * come, and gets the earlier answers by key. So ask before you act, with the same keys in the same order each time; or call
 * `task.detach()` first, which makes the call a task where the client has them.
 */
export const ask: {
  form<T = { [key: string]: Json }>(form: Form): Answer<T>;
  url(url: Url): Answer<undefined>;
  sampling(request: Sampling): Completion;
  roots(request: { key: string }): Root[];
  /** Several at once, at most 16; the answers come in the order of the questions. */
  all(questions: ({ form: Form } | { url: Url } | { sampling: Sampling } | { roots: { key: string } })[]): unknown[];
};
