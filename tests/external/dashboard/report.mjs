// Counts checks, and keeps what can be seen of one that failed.
import path from "node:path";

/** What one check may take. */
const CHECK_MS_MAX = 60_000;

export class Report {
  passed = 0;
  failed = 0;

  /** `only`: a word that the names of checks must contain; pictures of failures go into `folder`. */
  constructor(browser, { only, folder }) {
    Object.assign(this, { browser, only, folder });
  }

  /** Runs one check, with no context of the browser left of the one before. */
  async check(name, run) {
    if (this.only && !name.includes(this.only)) return;
    const began = performance.now();
    try {
      await withinTime(run());
      this.passed += 1;
      console.log(`ok ${name} (${Math.round(performance.now() - began)} ms)`);
    } catch (error) {
      this.failed += 1;
      console.log(`not ok ${name}: ${error.stack ?? error}`.replaceAll("\n", "\n  "));
      await this.#picture(name);
    }
    await Promise.all(this.browser.contexts().map((context) => context.close()));
  }

  async #picture(name) {
    const pages = this.browser.contexts().flatMap((context) => context.pages());
    for (const [number, page] of pages.entries()) {
      const file = path.join(this.folder, `${name.replaceAll(/\W+/g, "-")}-${number}.png`);
      const taken = await page.screenshot({ path: file, timeout: 5_000 }).then(() => true, () => false);
      console.log(`  ${page.url()} ${taken ? file : "(no picture)"}`);
    }
  }

  /** A number that somebody may want to know; it decides nothing. */
  note(text) {
    console.log(`note ${text}`);
  }
}

async function withinTime(running) {
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`it took more than ${CHECK_MS_MAX} ms`)), CHECK_MS_MAX);
  });
  try {
    await Promise.race([running, late]);
  } finally {
    clearTimeout(timer);
  }
}
