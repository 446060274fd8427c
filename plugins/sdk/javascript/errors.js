// Why a tool did not succeed, or why a call could not be made at all.

/** The tool ran and did not succeed. The client gets a failed result (`isError`) with this text. */
export class ToolError extends Error {
  name = "ToolError";
}

/** The call itself could not be made. The client gets a JSON-RPC error. */
export class CallError extends Error {
  name = "CallError";

  constructor(kind, message, value = message) {
    super(message);
    this.kind = kind;
    this.value = value;
  }

  /** The request is wrong in a way that the schema cannot say. */
  static invalidParams(message) {
    return new CallError("invalid-params", message);
  }

  /** What the request names does not exist. */
  static notFound(message) {
    return new CallError("not-found", message);
  }

  /** Something broke. The text goes to the operator's log; the client sees a fixed one. */
  static internal(message) {
    return new CallError("internal", message);
  }

  /** The call needs something that the client did not declare. */
  static missingCapability(feature) {
    return new CallError("missing-capability", `the client does not support ${feature}`, feature);
  }

  /** A JSON-RPC error with a code of your own, outside -32768 to -32000. */
  static custom(code, message, data) {
    const json = data === undefined ? undefined : JSON.stringify(data);
    return new CallError("custom", message, { code, message, data: json, meta: [] });
  }
}

/** There is no answer. `reason` is unsupported, invalid, unreachable, refused, not-accepted or cancelled. */
export class AskError extends Error {
  name = "AskError";

  constructor(reason, message, feature) {
    super(message);
    this.reason = reason;
    this.feature = feature;
  }
}

/** Nothing was kept or found. `reason` is denied, quota, too-large, invalid or unavailable. */
export class KvError extends ToolError {
  name = "KvError";

  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

/** The call was cancelled; what `task.checkpoint()` throws to leave the tool. */
export class Cancelled extends Error {
  name = "Cancelled";

  constructor() {
    super("the call was cancelled");
  }
}

/** What the bindings take for the error of the request. */
export function thrown(error) {
  return { tag: error.kind, val: error.value };
}
