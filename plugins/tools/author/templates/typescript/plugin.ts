// Greets people, and counts down.

import { definePlugin, task } from "bulkhead-plugin";

export function greet({ name }: { name: string }): string {
  return `Hello, ${name}!`;
}

interface Counted {
  left: number;
  messages: string[];
}

export function countdown({ seconds }: { seconds: number }): Counted {
  const messages: string[] = [];
  for (let left = seconds; left > 0; left -= 1) {
    task.progress(seconds - left, seconds, `${left} s left`);
    task.sleep(1000);
    task.checkpoint();
    messages.push(...task.steering());
    if (messages.includes("stop")) return { left: left - 1, messages };
  }
  return { left: 0, messages };
}

export const { tools } = definePlugin({
  tools: [
    {
      name: "greet",
      description: "Greets someone by name.",
      input: {
        type: "object",
        properties: { name: { type: "string", description: "Who is greeted." } },
        required: ["name"],
      },
      readOnly: true,
      run: greet,
    },
    {
      name: "countdown",
      description: "Counts down. As a task it takes messages: `stop` ends it.",
      input: {
        type: "object",
        properties: { seconds: { type: "integer", minimum: 1, maximum: 3600, description: "How long it takes." } },
        required: ["seconds"],
      },
      output: {
        type: "object",
        properties: {
          left: { type: "integer", description: "Seconds that were left when it ended." },
          messages: { type: "array", items: { type: "string" }, description: "The messages that arrived meanwhile." },
        },
        required: ["left", "messages"],
      },
      task: "optional",
      readOnly: true,
      run: countdown,
    },
  ],
});
