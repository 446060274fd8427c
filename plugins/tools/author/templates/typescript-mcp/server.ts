// An MCP server of the official SDK, which knows nothing of Bulkhead: it greets people, and counts down.

import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import * as z from "zod";

/** Every request has a server of its own: nothing of one is left for the next. */
function create(): McpServer {
  const server = new McpServer({ name: "{{name}}", version: "0.1.0" });
  server.registerTool(
    "greet",
    {
      description: "Greets someone by name.",
      inputSchema: z.object({ name: z.string().describe("Who is greeted.") }),
      annotations: { readOnlyHint: true },
    },
    async ({ name }) => {
      // What is thrown is the result of a tool that failed, and the model reads why.
      if (name.trim() === "") throw new Error("The name is blank.");
      return { content: [{ type: "text", text: `Hello, ${name}!` }] };
    },
  );
  server.registerTool(
    "countdown",
    {
      description: "Counts down.",
      inputSchema: z.object({ seconds: z.int().min(1).max(3600).describe("How long it takes.") }),
      outputSchema: z.object({ left: z.int().describe("Seconds that were left when it ended.") }),
      annotations: { readOnlyHint: true },
    },
    async ({ seconds }, ctx) => {
      for (let left = seconds; left > 0; left -= 1) {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        if (progressToken !== undefined) {
          const params = { progressToken, progress: seconds - left, total: seconds };
          await ctx.mcpReq.notify({ method: "notifications/progress", params });
        }
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      const counted = { left: 0 };
      return { content: [{ type: "text", text: JSON.stringify(counted) }], structuredContent: counted };
    },
  );
  return server;
}

export default createMcpHandler(create);
