// A host for unit tests: it answers questions from a script and remembers what the tool said.

let current;

/** The functions of the host that stands in right now. */
export const host = new Proxy(
  {},
  {
    get(_, name) {
      if (current === undefined) throw new Error("there is no host here: run the tool inside of withHost(...)");
      return current.functions[name];
    },
  },
);

export async function withHost(options, body) {
  const before = current;
  const standingIn = new TestHost(options);
  current = standingIn;
  try {
    await body(standingIn);
    return standingIn;
  } finally {
    current = before;
  }
}

class TestHost {
  progress = [];
  statuses = [];
  logs = [];
  asked = [];
  cancelled = false;
  detached = false;
  sleptMs = 0;

  constructor({ answers = {}, config = {}, steering = [], features, kept = {}, restored, extensions = {} } = {}) {
    const lists = Object.entries(answers).map(([key, value]) => [key, Array.isArray(value) ? [...value] : [value]]);
    this.answers = Object.fromEntries(lists);
    this.config = config;
    this.messages = [...steering];
    this.features = features;
    this.restored = restored;
    this.extensions = extensions;
    this.kept = new Map(Object.entries(kept));
    this.functions = this.#functions();
  }

  #functions() {
    const json = (value) => (value === undefined ? undefined : JSON.stringify(value));
    return {
      progress: (done, total, message) => this.progress.push([done, total, message]),
      setStatus: (message) => this.statuses.push(message),
      log: (level, _logger, data) => this.logs.push([level, JSON.parse(data)]),
      ask: (requests) => requests.map((request) => ({ key: request.key, answer: this.#answer(request), meta: [] })),
      detach: () => (this.detached = true),
      steering: () => this.messages.splice(0),
      sleep: (ms) => (this.sleptMs += Number(ms)),
      safePoint: () => ({ cancelled: this.cancelled, steeringPending: this.messages.length > 0 }),
      checkpoint: (state) => (this.saved = state),
      restored: () => this.restored,
      listsChanged: () => {},
      resourceUpdated: () => {},
      callId: () => "test",
      taskId: () => undefined,
      attempt: () => 1,
      idempotencyKey: () => "test",
      requestorId: () => "test",
      clientSupports: (feature) => this.#supports(feature),
      clientExtension: (name) => json(this.extensions[name]),
      wantedLogLevel: () => undefined,
      relatedTasks: () => [],
      get: (key) => json(this.config[key]),
      all: () => Object.entries(this.config).map(([key, value]) => [key, json(value)]),
      kvGet: (key) => this.kept.get(key),
      kvSet: (key, value) => this.kept.set(key, value),
      kvDelete: (key) => this.kept.delete(key),
      kvKeys: (prefix) => ({ keys: [...this.kept.keys()].filter((key) => key.startsWith(prefix)).sort() }),
    };
  }

  #supports(feature) {
    return this.features === undefined || this.features.includes(feature);
  }

  #answer({ key, question }) {
    this.asked.push([key, question.val?.message ?? question.val]);
    const feature = { form: "elicitation-form", url: "elicitation-url" }[question.tag] ?? question.tag;
    if (!this.#supports(feature)) throw { tag: "unsupported", val: feature };
    if (!this.answers[key]?.length) throw new Error(`the test has no answer for the question ${key}`);
    const answer = this.answers[key].shift();
    if (question.tag === "sampling") {
      const result = { role: "assistant", model: "test", content: { type: "text", text: answer } };
      return { tag: "sampling", val: JSON.stringify(result) };
    }
    if (question.tag === "roots") return { tag: "roots", val: answer.map((uri) => ({ uri, meta: [] })) };
    const declined = answer === "decline" || answer === "cancel";
    const val = declined ? { action: answer } : { action: "accept", content: JSON.stringify(answer) };
    return { tag: "elicitation", val };
  }
}
