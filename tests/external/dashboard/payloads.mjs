// What a hostile plugin says. Each of these does something in a page that writes it without care; `hostile.mjs` shows that it does.

/** Markup that runs a script, loads something, leads away, restyles the page, or turns text around. */
export const PAYLOADS = [
  `"'></title></textarea></script></style></pre></blockquote></td></option></select></h1>`,
  `<script>alert('script')</script>`,
  `<img src="https://evil.example/picture" onerror="alert('image')">`,
  `<svg onload="alert('svg')"></svg><details open ontoggle="alert('toggle')"></details>`,
  `<a href="javascript:alert('link')">Click here</a> <a href="https://evil.example/away">or here</a>`,
  `<iframe src="https://evil.example/frame"></iframe><object data="https://evil.example/object"></object>`,
  `<form action="https://evil.example/form"><button>Log in again</button></form>`,
  `<meta http-equiv="refresh" content="0; url=https://evil.example/refresh"><base href="https://evil.example/">`,
  `<style>body { display: none } header { position: fixed; top: 90vh }</style>`,
  `<link rel="stylesheet" href="https://evil.example/style">`,
  `\u202eemit siht txet\u202c \u2066\u2067\u200f\u061c \u0639\u0631\u0628\u064a \u200b\ufeff`,
  `&lt;script&gt; &amp;amp; %3Cscript%3E {{7*7}} \${7*7} \\u003cscript\\u003e`,
  "a\u0300".repeat(60),
];

/** All of them, and a word that has no place to break. */
export const TEXT = `${PAYLOADS.join(" ")} ${"W".repeat(1_000)}`;

/** A page that a plugin sends people to, as hostile as a host lets through. */
export const ADDRESS = `https://evil.example/${"a".repeat(500)}?q=javascript:alert(1)//%22onclick=alert(2)`;

/** A form with all of it in names, titles, descriptions, choices and defaults. */
export function hostileSchema() {
  const properties = {};
  for (const [number, payload] of PAYLOADS.entries()) {
    const choices = [payload, "javascript:alert('choice')"];
    const titled = choices.map((choice) => ({ const: choice, title: choice }));
    const kinds = [
      { type: "string", default: payload },
      { type: "string", enum: choices, enumNames: choices, default: payload },
      { type: "array", items: { anyOf: titled }, default: choices },
      { type: "boolean", default: true },
      { type: "number", minimum: -1e308, maximum: 1e308 },
    ];
    properties[`${payload}${number}`] = { ...kinds[number % kinds.length], title: payload, description: payload };
  }
  properties["long"] = { type: "string", title: "T".repeat(20_000), description: "d ".repeat(20_000), default: "v".repeat(20_000) };
  return { type: "object", properties, required: ["long"] };
}
