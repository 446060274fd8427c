// The page of a host application: the official client, and the official bridge for each view. It is bundled, and driven by main.mjs.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  PostMessageTransport,
  RESOURCE_MIME_TYPE,
  getToolUiResourceUri,
  isToolVisibilityAppOnly,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const INFO = { name: "apps", version: "1" };
const MODES = { legacy: "legacy", modern: { pin: "2026-07-28" } };
const apps = [];

/** Connects, and says which revision was agreed on and what the server offers. */
globalThis.connect = async (url, era) => {
  const client = new Client(INFO, { versionNegotiation: { mode: MODES[era] } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  globalThis.client = client;
  const { tools } = await client.listTools();
  const named = ({ name, _meta }) => ({ name, view: getToolUiResourceUri({ _meta }), forViews: isToolVisibilityAppOnly({ _meta }) });
  return { extensions: client.getServerCapabilities().extensions, tools: tools.map(named) };
};

/** Calls a tool as a model does, and shows its view in a frame. Gives the frame's number. */
globalThis.show = async (tool, input) => {
  const client = globalThis.client;
  const { tools } = await client.listTools();
  const uri = getToolUiResourceUri(tools.find(({ name }) => name === tool));
  const { contents } = await client.readResource({ uri });
  if (contents[0].mimeType !== RESOURCE_MIME_TYPE || contents[0].uri !== uri) throw new Error(JSON.stringify(contents[0]).slice(0, 200));
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  const app = { sizes: 0, called: [] };
  // What the view asks of its server goes the way of the bridge; it is only noted here.
  const noting = new Proxy(client, {
    get(target, member) {
      if (member === "request") {
        return (request, ...rest) => {
          app.called.push(request.params.name);
          return target.request(request, ...rest);
        };
      }
      const value = Reflect.get(target, member);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const bridge = new AppBridge(noting, INFO, { serverTools: {}, logging: {} });
  const initialized = new Promise((done) => bridge.addEventListener("initialized", done));
  bridge.addEventListener("sizechange", () => (app.sizes += 1));
  document.body.append(frame);
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = contents[0].text;
  await initialized;
  await bridge.sendToolInput({ arguments: input });
  await bridge.sendToolResult(await client.callTool({ name: tool, arguments: input }));
  return apps.push(app) - 1;
};

/** What was seen of a frame's view from outside. */
globalThis.seen = (number) => apps[number];
