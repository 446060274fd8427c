// What JavaScript of the web or of Node.js has and a component has not, with what to use instead. Read by bundle.mjs, which knows places.

const NO_FOLDER = "A component has no folder: `import` what it needs; `kv` of the SDK keeps data.";

// Globals of Node.js, what calls that need one look like in an author's own code, and what to use instead.
const NODE_GLOBALS = {
  process: {
    seen: /\bprocess\.(env|argv|cwd|exit)\b/g,
    instead: "Inside of a tool, `config.get` of the SDK reads the operator's settings; `console` prints.",
  },
  Buffer: {
    seen: /\bBuffer\.(from|alloc|concat)\(/g,
    instead: "Use `Uint8Array` with `TextEncoder` and `TextDecoder`, or `npm install buffer`.",
  },
  __dirname: { seen: /\b__dirname\b/g, instead: NO_FOLDER },
  __filename: { seen: /\b__filename\b/g, instead: NO_FOLDER },
  global: { instead: "Use `globalThis`." },
  setImmediate: { seen: /\bsetImmediate\(/g, instead: "Use `setTimeout`, inside of a tool." },
  clearImmediate: { seen: /\bclearImmediate\(/g, instead: "Use `clearTimeout`, inside of a tool." },
};

// What the engine lacks, as it says so itself, and what the bundle looks like that is going to hear it in a call.
const LACKING = [
  {
    heard: /invalid (class )?property name in regular expression/,
    seen: /\bnew RegExp\((["'`])(?:(?!\1).)*\\[pP]\{/g,
    what: "`\\p{…}` in a regular expression",
    instead: "List the ranges of characters, such as [A-Za-z\\u00C0-\\u024F].",
  },
  {
    heard: /Intl is not defined/,
    seen: /\bIntl\.\w/g,
    what: "`Intl`",
    instead: "Format by hand, or with a package that brings its own tables.",
  },
  {
    heard: /\.normalize is not a function/,
    seen: /\.normalize\((["'`])NFK?[CD]\1\)/g,
    what: "`String.prototype.normalize`",
    instead: "Use a package such as `unorm`.",
  },
  {
    heard: /Dynamic require of/,
    what: "`require` of a name that is computed",
    instead: "Use `import`.",
  },
  ...Object.entries(NODE_GLOBALS).map(([name, { seen, instead }]) => ({
    heard: new RegExp(`^ReferenceError: ${name} is not defined`),
    seen,
    what: `\`${name}\` of Node.js`,
    instead,
    // Packages ask first whether it is there.
    isSeenInPackages: false,
  })),
];

/** What to say of an error that the engine gave, if it lacks what was asked for. */
export function lacking(text) {
  const found = LACKING.find(({ heard }) => heard.test(text));
  return found && `${found.what} is not there in a component. ${found.instead}`;
}
