import type { ClientFeature, Json, LogLevel } from "./index.js";

/** What the tool is going to hear. */
export interface HostOptions {
  /**
   * By question key: an object fills in a form, `"decline"` and `"cancel"` do not, a text is what the client's model says; a
   * list holds the answers of a key that is asked more than once (roots: a list with one list of URIs).
   */
  answers?: { [key: string]: unknown };
  /** The operator's settings. */
  config?: { [key: string]: Json };
  /** Messages that wait from the start. */
  steering?: string[];
  /** What the client supports; everything unless said. */
  features?: ClientFeature[];
  /** What the client says of extensions of MCP, by name; none unless said. */
  extensions?: { [name: string]: Json };
  /** What `kv` finds; nothing expires. */
  kept?: { [key: string]: Uint8Array };
  /** What an earlier run of the tool saved. */
  restored?: Uint8Array;
}

/** What the tool said. */
export interface TestHost {
  readonly progress: [number, number | undefined, string | undefined][];
  readonly statuses: string[];
  readonly logs: [LogLevel, Json][];
  /** Key and message of each question. */
  readonly asked: [string, string][];
  readonly messages: string[];
  /** What `kv` keeps. */
  readonly kept: Map<string, Uint8Array>;
  /** The last state that the tool saved. */
  readonly saved?: Uint8Array;
  cancelled: boolean;
  readonly detached: boolean;
  readonly sleptMs: number;
}

/** Runs `body` with a host that stands in for the real one. */
export function withHost(options: HostOptions, body: (host: TestHost) => unknown): Promise<TestHost>;
