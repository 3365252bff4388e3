// The Inspector of MCP, on the command line. INSPECTOR: its program, NODE: a Node that is new enough for it. SERVER,
// CLIENT_ID, DOCUMENT: as in typescript.mjs.

import { execFileSync } from "node:child_process";

const { INSPECTOR, NODE, SERVER, CLIENT_ID, DOCUMENT } = process.env;
const identity = CLIENT_ID ? ["--client-id", CLIENT_ID] : DOCUMENT ? ["--client-metadata-url", DOCUMENT] : [];
const args = [INSPECTOR, "--cli", SERVER, "--transport", "http", ...identity, "--method", "tools/list"];
const env = { ...process.env, MCP_AUTO_OPEN_ENABLED: "true", MCP_INSPECTOR_SECRET_STORE: "file" };
const printed = execFileSync(NODE, args, { env, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
console.log(JSON.parse(printed).tools.length ? "called" : `failed: ${printed}`);
