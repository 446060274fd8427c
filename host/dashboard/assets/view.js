'use strict';
// The page's side of the view of an MCP App, which is in a frame of another origin: messages of JSON-RPC, and calls by a form's token.
const part = document.querySelector('.app-view');
const frame = part.querySelector('iframe'), calls = part.querySelector('ol');
const { origin, call, token } = part.dataset;
const { html, input, answer, tool, version } = JSON.parse(part.dataset.view);
const HEIGHT_MAX = 2000, CALLS_SHOWN_MAX = 20;
const send = (message) => frame.contentWindow.postMessage({ jsonrpc: '2.0', ...message }, origin);
const failed = (code, message) => ({ error: { code, message } });

const callTool = async ({ name, arguments: input = {} }) => {
  const line = document.createElement('li');
  line.textContent = `${name} …`;
  calls.append(line);
  if (calls.children.length > CALLS_SHOWN_MAX) calls.firstChild.remove();
  const body = new URLSearchParams({ form_token: token, name, arguments: JSON.stringify(input) });
  const response = await fetch(call, { method: 'POST', body });
  const said = response.ok ? await response.json() : failed(-32603, `The dashboard answered ${response.status}`);
  line.textContent = `${name}: ${said.error?.message ?? (said.result.isError ? 'the tool says that it failed' : 'done')}`;
  return said;
};

const initialize = () => ({
  result: {
    protocolVersion: '2026-01-26',
    hostInfo: { name: 'bulkhead-dashboard', version },
    hostCapabilities: { serverTools: {} },
    hostContext: {
      toolInfo: { tool },
      theme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light',
      displayMode: 'inline',
      availableDisplayModes: ['inline'],
      containerDimensions: { width: frame.clientWidth, maxHeight: HEIGHT_MAX },
      locale: navigator.language,
      platform: 'web',
    },
  },
});
const requests = new Map([['ui/initialize', initialize], ['ping', () => ({ result: {} })], ['tools/call', callTool]]);
const notifications = new Map([
  ['ui/notifications/sandbox-proxy-ready', () => send({ method: 'ui/notifications/sandbox-resource-ready', params: { html } })],
  ['ui/notifications/initialized', () => {
    send({ method: 'ui/notifications/tool-input', params: { arguments: JSON.parse(input) } });
    send({ method: 'ui/notifications/tool-result', params: JSON.parse(answer).result });
  }],
  ['ui/notifications/size-changed', ({ height }) => {
    if (height > 0) frame.style.height = `${Math.min(Math.ceil(height), HEIGHT_MAX)}px`;
  }],
]);
const noRequest = () => failed(-32601, 'Method not found: a preview calls tools alone');

addEventListener('message', async ({ source, origin: from, data }) => {
  if (source !== frame.contentWindow || from !== origin || data?.jsonrpc !== '2.0') return;
  const { id, method, params = {} } = data;
  if (id === undefined) return notifications.get(method)?.(params);
  if (method === undefined) return;
  const does = requests.get(method) ?? noRequest;
  const { result, error } = await Promise.resolve(params).then(does).catch((why) => failed(-32603, String(why)));
  send(error ? { id, error } : { id, result });
});
// Only now: what the frame says first must not be missed.
frame.src = frame.dataset.src;
