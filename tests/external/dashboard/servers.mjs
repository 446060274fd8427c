// Servers that a host speaks to: one that has components, and an issuer that logs people in. Knows nothing of hosts and browsers.
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { readFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import path from "node:path";

const KEYS = path.resolve(import.meta.dirname, "../../harness/keys");
const CLIENT = "dashboard";

async function listening(server) {
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return server.address().port;
}

/** Has components at `https://localhost:PORT/NAME`. */
export class Components {
  #files = new Map();

  static async start() {
    const components = new Components();
    const [key, cert] = await Promise.all(["host1.key.pem", "host1.pem"].map((name) => readFile(path.join(KEYS, name))));
    components.server = https.createServer({ key, cert }, async (request, response) => {
      const file = components.#files.get(request.url);
      if (file) response.end(await readFile(file));
      else response.writeHead(404).end();
    });
    components.port = await listening(components.server);
    return components;
  }

  /** Has a file under a name from now on; where. */
  add(name, file) {
    this.#files.set(`/${name}`, file);
    return `https://localhost:${this.port}/${name}`;
  }

  /** What lets a host fetch from here. */
  static get section() {
    return `[sources]\nprivate_hosts = ["localhost"]\nroots = [${JSON.stringify(path.join(KEYS, "root1.pem"))}]\n`;
  }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }
}

const base64 = (value) => Buffer.from(value).toString("base64url");

/** An issuer of OpenID Connect at which everybody is logged in who comes. */
export class Issuer {
  #key = generateKeyPairSync("ec", { namedCurve: "P-256" });
  #grants = new Map();

  /** Who comes next, as the claims of the id token say. */
  claims = { sub: "olga" };

  static async start() {
    const issuer = new Issuer();
    issuer.server = http.createServer((request, response) => issuer.#answer(request, response));
    issuer.base = `http://127.0.0.1:${await listening(issuer.server)}`;
    issuer.url = `${issuer.base}/realm`;
    return issuer;
  }

  /** What lets people of this issuer into a host; those of the group are operators. */
  get section() {
    return `
[dashboard.oidc]
issuer = "${this.url}"
client_id = "${CLIENT}"
operators = { claim = "groups", value = "operators" }
[auth]
resource = "https://mcp.example.com/mcp"
[[auth.issuer]]
issuer = "${this.url}"
tenant = "acme"
`;
  }

  async #answer(request, response) {
    const url = new URL(request.url, this.base);
    const json = (status, value) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    switch (url.pathname) {
      case "/.well-known/oauth-authorization-server/realm":
        return json(200, {
          issuer: this.url,
          jwks_uri: `${this.base}/keys`,
          authorization_endpoint: `${this.base}/authorize`,
          token_endpoint: `${this.base}/token`,
        });
      case "/keys":
        return json(200, { keys: [{ ...this.#key.publicKey.export({ format: "jwk" }), kid: "1", use: "sig", alg: "ES256" }] });
      case "/authorize":
        return response.writeHead(302, { location: this.#authorize(url.searchParams) }).end();
      case "/token": {
        let form = "";
        for await (const piece of request) form += piece;
        const given = this.#exchange(new URLSearchParams(form));
        return given ? json(200, given) : json(400, { error: "invalid_grant" });
      }
      default:
        return json(404, {});
    }
  }

  /** Lets somebody in; where the browser goes then. */
  #authorize(asked) {
    assert.equal(asked.get("response_type"), "code");
    assert.equal(asked.get("code_challenge_method"), "S256");
    const code = `code-${this.#grants.size}`;
    this.#grants.set(code, { asked, claims: this.claims });
    const back = new URL(asked.get("redirect_uri"));
    back.searchParams.set("code", code);
    back.searchParams.set("state", asked.get("state"));
    return back.href;
  }

  /** What a code is worth, to whom it was given for. */
  #exchange(form) {
    const grant = this.#grants.get(form.get("code"));
    const challenge = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
    const { asked } = grant ?? { asked: new URLSearchParams() };
    const fits = ["client_id", "redirect_uri"].every((name) => form.get(name) === asked.get(name));
    if (!fits || challenge !== asked.get("code_challenge")) return undefined;
    const now = Math.floor(Date.now() / 1_000);
    const usual = { iss: this.url, aud: CLIENT, iat: now, exp: now + 600, nonce: asked.get("nonce") };
    const id_token = this.#signed({ ...usual, ...grant.claims });
    return { access_token: "an-access-token", token_type: "Bearer", expires_in: 300, id_token };
  }

  #signed(claims) {
    const message = [{ typ: "JWT", alg: "ES256", kid: "1" }, claims].map((part) => base64(JSON.stringify(part))).join(".");
    const key = { key: this.#key.privateKey, dsaEncoding: "ieee-p1363" };
    return `${message}.${base64(sign("sha256", Buffer.from(message), key))}`;
  }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }
}
