// mcp-remote, which an assistant starts and speaks to by its standard input. MCP_REMOTE: its program. SERVER,
// CLIENT_ID: as in typescript.mjs.

import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";

import { callForEachLine } from "./callback.mjs";

const { MCP_REMOTE, SERVER, CLIENT_ID } = process.env;
const registered = CLIENT_ID ? ["--static-oauth-client-info", JSON.stringify({ client_id: CLIENT_ID })] : [];
const client = new Client({ name: "tests", version: "1" });
const transport = new StdioClientTransport({
  command: "node", args: [MCP_REMOTE, SERVER, ...registered], env: process.env, stderr: "inherit",
});
await client.connect(transport, { timeout: 60_000 });

await callForEachLine(() => client.listTools());
