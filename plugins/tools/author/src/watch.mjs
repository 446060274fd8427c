/**
 * Runs in the engine, in front of the bundle, while the component is made: what only a call has throws, with its place, and
 * what is read once for all calls is noted. Nobody can tell either from the text of a bundle. The engine by itself would end
 * without a place at the first, and say nothing of the second.
 */
export function watch() {
  const notes = [];
  const restoring = [];
  let isLoading = true;
  let refusal;

  function refuse(what) {
    if (!isLoading) return;
    refusal ??= new TypeError(`${what} is called while the plugin is built, where it has no answer. Call it inside of a tool.`);
    throw refusal;
  }
  function note(what) {
    if (isLoading) notes.push({ what, stack: new Error().stack });
  }
  function put(owner, name, value) {
    const before = Object.getOwnPropertyDescriptor(owner, name);
    Reflect.defineProperty(owner, name, { value, writable: true, configurable: true });
    restoring.push(() => {
      // What the module has put there itself stays.
      if (owner[name] !== value) return;
      if (before) Reflect.defineProperty(owner, name, before);
      else Reflect.deleteProperty(owner, name);
    });
  }
  function wrap(owner, name, heard, what) {
    const original = owner?.[name];
    if (typeof original !== "function") return;
    put(owner, name, function (...values) {
      heard(what);
      return Reflect.apply(original, this, values);
    });
  }

  wrap(Math, "random", refuse, "`Math.random`");
  for (const name of ["getRandomValues", "randomUUID"]) wrap(globalThis.crypto, name, refuse, `\`crypto.${name}\``);
  for (const name of ["fetch", "setTimeout", "setInterval"]) wrap(globalThis, name, refuse, `\`${name}\``);
  wrap(globalThis.performance, "now", refuse, "`performance.now`");
  wrap(Date, "now", note, "`Date.now()`");
  const watched = new Proxy(Date, {
    construct(target, values, made) {
      if (values.length === 0) note("`new Date()`");
      return Reflect.construct(target, values, made === watched ? target : made);
    },
    apply(target) {
      note("`Date()`");
      return target();
    },
  });
  put(globalThis, "Date", watched);

  globalThis.bulkheadBuild = {
    refuse,
    end() {
      isLoading = false;
      while (restoring.length > 0) restoring.pop()();
      delete globalThis.bulkheadBuild;
      if (refusal) throw refusal;
      if (notes.length > 0) throw new Error(`bulkhead-notes ${JSON.stringify(notes)}`);
    },
  };
}
