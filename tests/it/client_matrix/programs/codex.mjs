// Codex: signs in if it has no credentials, then lists the tools of the server, as its app does. CODEX: its program.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const { CODEX, HOME, SERVER, CLIENT_ID } = process.env;
const home = `${HOME}/.codex`;
if (!existsSync(home)) {
  mkdirSync(home);
  const client = CLIENT_ID ? `[mcp_servers.tests.oauth]\nclient_id = "${CLIENT_ID}"\n` : "";
  const keys = `mcp_oauth_credentials_store = "file"\n[mcp_servers.tests]\nurl = "${SERVER}"\n${client}`;
  writeFileSync(`${home}/config.toml`, keys);
}
const signIn = () => execFileSync("node", [CODEX, "mcp", "login", "tests"], { stdio: ["ignore", "inherit", "inherit"] });
if (!existsSync(`${home}/.credentials.json`)) signIn();

/** What the app says of the server. */
const ask = async () => {
  const app = spawn("node", [CODEX, "app-server"], { stdio: ["pipe", "pipe", "inherit"] });
  const send = (message) => app.stdin.write(`${JSON.stringify(message)}\n`);
  send({ id: 1, method: "initialize", params: { clientInfo: { name: "tests", version: "1" } } });
  send({ method: "initialized" });
  send({ id: 2, method: "mcpServerStatus/list", params: {} });
  for await (const line of createInterface({ input: app.stdout })) {
    const message = JSON.parse(line);
    if (message.id !== 2) continue;
    app.kill();
    return message.result?.data?.[0] ?? message;
  }
};

let server = await ask();
// It asks the user to sign in again, and the user does.
if (server.authStatus === "notLoggedIn") {
  signIn();
  server = await ask();
}
console.log(Object.keys(server.tools ?? {}).length ? "called" : `failed: ${JSON.stringify(server)}`);
process.exit();
