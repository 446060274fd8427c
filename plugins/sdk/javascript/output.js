// What a tool gives back, and a prompt says: content blocks as the interface wants them.

export function output(value) {
  if (value === undefined || value === null) return { content: [], isError: false, meta: [] };
  if (typeof value === "string") return { content: [block({ text: value })], isError: false, meta: [] };
  if (value instanceof Output) return value.done();
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`the tool returned a ${typeof value}, which JSON cannot hold`);
  const structured = typeof value === "object" && !Array.isArray(value) ? text : undefined;
  return { content: [block({ text })], structured, isError: false, meta: [] };
}

export class Output {
  #blocks = [];
  #structured;
  #failed = false;
  #meta = {};

  text(text, annotations) {
    return this.#add({ text, annotations });
  }

  image(data, mimeType, annotations) {
    return this.#add({ image: data, mimeType, annotations });
  }

  audio(data, mimeType, annotations) {
    return this.#add({ audio: data, mimeType, annotations });
  }

  link(uri, name, more = {}) {
    return this.#add({ link: uri, name, ...more });
  }

  resource(uri, body, mimeType) {
    return this.#add({ resource: uri, body, mimeType });
  }

  structured(value) {
    this.#structured = JSON.stringify(value);
    return this;
  }

  meta(key, value) {
    this.#meta[key] = value;
    return this;
  }

  failed() {
    this.#failed = true;
    return this;
  }

  done() {
    const meta = metaOf(this.#meta);
    return { content: this.#blocks, structured: this.#structured, isError: this.#failed, meta };
  }

  #add(content) {
    this.#blocks.push(block(content));
    return this;
  }
}

/** One content block; a message of a prompt is one with a role. */
export function block({ annotations: said, mimeType, ...content }) {
  const common = { annotations: annotationsOf(said), meta: [] };
  if ("text" in content) return { tag: "text", val: { text: content.text, ...common } };
  if ("image" in content) return { tag: "image", val: { data: content.image, mimeType, ...common } };
  if ("audio" in content) return { tag: "audio", val: { data: content.audio, mimeType, ...common } };
  if ("link" in content) {
    const { link: uri, name, title, description } = content;
    return { tag: "resource-link", val: { uri, name, title, description, mimeType, ...common } };
  }
  const body = { tag: typeof content.body === "string" ? "text" : "blob", val: content.body };
  return { tag: "resource", val: { contents: { uri: content.resource, mimeType, body, meta: [] }, ...common } };
}

/** Entries of a `_meta`. */
export function metaOf(entries = {}) {
  return Object.entries(entries).map(([key, value]) => [key, JSON.stringify(value)]);
}

export function annotationsOf(said) {
  return said && { audience: said.audience ?? [], priority: said.priority, lastModified: said.lastModified };
}

export function iconsOf(icons = []) {
  return icons.map((icon) => ({ sizes: [], ...icon }));
}
