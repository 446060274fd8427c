// A host with plugins, tenants and clients, as operators start one. Knows nothing of browsers.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, open, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";

/** What a host, a command or a change may take before it counts as lost. */
const PATIENCE_MS = 60_000;
/** Where views of MCP Apps are previewed; the port is the dashboard's. */
export const PREVIEW_ORIGIN = "http://apps.localhost";
const ROOT = path.resolve(import.meta.dirname, "../../..");

const run = promisify(execFile);

/** Waits until `look` finds something. */
export async function until(what, look, ms = PATIENCE_MS) {
  const end = Date.now() + ms;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what} did not come within ${ms} ms`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** The component of a guest. */
export function component(name) {
  return path.join(ROOT, "target/plugins", `${name}.wasm`);
}

/** Another version of a guest: the same component with other words of the same length. */
export async function variant(name, from, to, file) {
  assert.equal(from.length, to.length, "the rest of the component must not move");
  const bytes = await readFile(component(name));
  let at = bytes.indexOf(from);
  assert.ok(at >= 0, `${name} holds no ${from}`);
  for (; at >= 0; at = bytes.indexOf(from, at + 1)) bytes.write(to, at);
  await writeFile(file, bytes);
  return file;
}

/** Shares compiled code with the tests of the program, where they ran: a host of theirs compiles for a quarter of a minute. */
async function shareCode(data) {
  await mkdir(data, { mode: 0o700 });
  for (const name of ["cache", "cache.key"]) {
    const shared = path.join(ROOT, "target/test-code/bulkhead", name);
    if (existsSync(shared)) await symlink(shared, path.join(data, name));
  }
}

export class Host {
  /**
   * Starts one. `plugins` are guests by their `name`, perhaps of another `guest`, in a `file` of another name or at a `url`, with `toml`
   * for their entry; `sections` is TOML. All of it lies in a folder that goes with the host; `prepare` puts more into it. Sessions are
   * kept by `allowedHosts`, so that each page is at the same one; without one, each browser is sent to a name of its own.
   */
  static async start({ plugins, sections = "", allowedHosts = ["127.0.0.1"], prepare = async () => {} }) {
    const host = new Host();
    host.folder = await mkdtemp(path.join(tmpdir(), "dashboard-"));
    host.data = path.join(host.folder, "data");
    await shareCode(host.data);
    await prepare(host);
    const entries = [];
    for (const { name, guest = name, file = `${name}.wasm`, url, toml = () => "" } of plugins) {
      if (!url) await copyFile(component(guest), host.file(file));
      const place = url ? `url = ${JSON.stringify(url)}` : `file = ${JSON.stringify(host.file(file))}`;
      entries.push(`[[plugin]]\nname = ${JSON.stringify(name)}\n${place}\n${toml(host)}`);
    }
    host.adminToken = "0123456789abcdef".repeat(2);
    await writeFile(host.file("admin.token"), host.adminToken);
    const base = `
[admin]
listen = "127.0.0.1:0"
token_file = ${JSON.stringify(host.file("admin.token"))}
[audit]
enabled = true
[dashboard]
listen = "127.0.0.1:0"
allowed_hosts = ${JSON.stringify(allowedHosts)}
app_preview_origin = ${JSON.stringify(PREVIEW_ORIGIN)}
`;
    host.config = host.file("bulkhead.toml");
    await writeFile(host.config, `${base}${sections}\n${entries.join("")}`);
    try {
      await host.#serve();
    } catch (error) {
      await host.stop();
      throw error;
    }
    return host;
  }

  async #serve() {
    const program = process.env.DASHBOARD_HOST;
    const places = ["--config", this.config, "--data", this.data, "--listen", "127.0.0.1:0"];
    const environment = Object.entries(process.env).filter(([name]) => !name.startsWith("BULKHEAD_"));
    const log = this.file("host.log");
    const written = await open(log, "w");
    const child = spawn(program, ["serve", ...places], {
      env: Object.fromEntries(environment),
      stdio: ["ignore", "pipe", written.fd],
    });
    await written.close();
    this.child = child;
    this.ended = new Promise((done) => child.on("exit", done));
    let said = "";
    child.stdout.on("data", (bytes) => (said += bytes));
    const url = await until("the host", async () => {
      assert.equal(child.exitCode, null, `the host ended: ${await readFile(log, "utf8")}`);
      return /listening on (\S+)/.exec(said)?.[1];
    });
    this.url = url;
    this.log = async () => readFile(log, "utf8");
    const served = /the dashboard is served.*?address="([^"]+)"/;
    this.dashboard = await until("the dashboard", async () => served.exec(await this.log())?.[1]);
  }

  /** Runs a command of the operator on the machine of the host; its JSON. */
  async command(...words) {
    const { stdout } = await run(process.env.DASHBOARD_HOST, [...words, "--json", "--data", this.data]);
    return JSON.parse(stdout);
  }

  /** A new token: the credential, and the id under which it is revoked. */
  async token(requestor, tenant, ...more) {
    return this.command("token", "create", "--requestor", requestor, "--tenant", tenant, ...more);
  }

  /** A link that logs an operator in. */
  async link() {
    return (await this.command("dashboard", "login")).link;
  }

  /** A file beside the data directory. */
  file(name) {
    return path.join(this.folder, name);
  }

  async stop() {
    this.child.kill("SIGTERM");
    const killed = setTimeout(() => this.child.kill("SIGKILL"), 10_000);
    await this.ended;
    clearTimeout(killed);
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** A client of MCP 2025-11-25 that can show every question, so that plugins ask. It leaves the answers to the dashboard. */
export class Client {
  #id = 0;

  static async connect(host, token) {
    const client = new Client();
    Object.assign(client, { url: host.url, token });
    const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
    const clientInfo = { name: "dashboard", version: "1" };
    await client.request("initialize", { protocolVersion: "2025-11-25", capabilities, clientInfo });
    await client.#send({ jsonrpc: "2.0", method: "notifications/initialized" });
    return client;
  }

  async #send(message) {
    const headers = {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      authorization: `Bearer ${this.token}`,
      "mcp-protocol-version": "2025-11-25",
    };
    if (this.session) headers["mcp-session-id"] = this.session;
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const response = await fetch(this.url, { method: "POST", headers, body: JSON.stringify(message), signal });
    assert.ok(response.ok, `${message.method}: ${response.status}`);
    this.session ??= response.headers.get("mcp-session-id");
    return response;
  }

  /** The result of a request; an error of the protocol is thrown. */
  async request(method, params) {
    const id = ++this.#id;
    const response = await this.#send({ jsonrpc: "2.0", id, method, params });
    const text = await response.text();
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    const lines = isStream ? text.split("\n").filter((line) => line.startsWith("data: {")) : [text];
    const messages = lines.map((line) => JSON.parse(line.replace(/^data: /, "")));
    const reply = messages.find((message) => message.id === id);
    assert.ok(reply && !reply.error, `${method}: ${JSON.stringify(reply?.error ?? text)}`);
    return reply.result;
  }

  /** Starts a task; its id. */
  async task(name, input = {}) {
    const result = await this.request("tools/call", { name, arguments: input, task: { ttl: 3_600_000 } });
    return result.task.taskId;
  }

  async status(taskId) {
    return (await this.request("tasks/get", { taskId })).status;
  }

  /** Waits until a task has this status. */
  async until(taskId, status) {
    let now = "";
    const look = async () => (now = await this.status(taskId)) === status;
    return until(`${status} of a task that is ${now}`, look);
  }

  /** Starts a task and waits until it has this status; its id. */
  async taskUntil(status, name, input) {
    const id = await this.task(name, input);
    await this.until(id, status);
    return id;
  }

  async cancel(taskId) {
    await this.request("tasks/cancel", { taskId });
  }
}

/** An empty folder below target/dashboard. */
export async function emptied(name) {
  const folder = path.join(process.env.DASHBOARD_PACKAGES, name);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  return folder;
}
