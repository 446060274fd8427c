// Makes a component of an MCP server: a module whose default export has a `fetch`, as `createMcpHandler` of the official SDK makes one and
// as Cloudflare Workers and Bun want it, becomes what answers `wasi:http/incoming-handler`. Stands behind bundle.mjs in one module.

/**
 * The module that is bundled: it hands each request to the server.
 *
 * The engine's own request cannot be cloned once its headers were looked at ("Headers are immutable"), which the SDK's handler does first:
 * every call would be a 500 with an empty reason. A copy can be cloned.
 */
const GLUE = `
import server from ${JSON.stringify(entry)};

if (typeof server?.fetch !== "function") {
  throw new TypeError("the default export has no \`fetch\`: write \`export default createMcpHandler(…)\`");
}

async function answer(request) {
  const { url, method } = request;
  const body = method === "GET" || method === "HEAD" ? undefined : await request.text();
  return server.fetch(new Request(url, { method, headers: new Headers([...request.headers]), body }));
}

addEventListener("fetch", (event) => event.respondWith(answer(event.request)));
`;

const { source, placeOf } = texts(
  await bundle({
    stdin: { contents: GLUE, resolveDir: project, sourcefile: "bulkhead-server.js", loader: "js" },
    // Packages that ship one build for each runtime have none for this engine. That for workerd needs nothing but what browsers have; the
    // default of the official SDK is that for Node.js.
    conditions: ["workerd", "worker"],
    // It is there, and throws while the snapshot is made, when it has no request; the validator of the official SDK reads it then.
    define: { "self.location": "undefined" },
    // Where the tests' tools are, the packages are not in the project.
    nodePaths: [packages],
  }),
);
const sourcePath = join(scratch, "plugin.js");
await writeFile(sourcePath, source);
try {
  const { component } = await componentize({
    sourcePath,
    witPath: wit,
    worldName: "server",
    // The server answers requests, and may send some, whatever it calls `fetch`.
    disableFeatures: unusedFeatures(source).filter((feature) => feature !== "http"),
  });
  await writeFile(output, component);
} catch (error) {
  const isNone = /the default export has no `fetch`.*/.exec(error.message)?.[0];
  fail(isNone ? `${shown(entry)}: ${isNone}` : mistake(error.message, placeOf));
}
warn(source, placeOf);
