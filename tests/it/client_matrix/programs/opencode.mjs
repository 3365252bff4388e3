// opencode: signs in if it has no tokens, then asks its server for the state of its connection. OPENCODE: its program.

import { execFileSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";

const { OPENCODE, HOME, SERVER, CLIENT_ID } = process.env;
const oauth = CLIENT_ID && { clientId: CLIENT_ID };
writeFileSync(`${HOME}/opencode.json`, JSON.stringify({
  autoupdate: false, mcp: { tests: { type: "remote", url: SERVER, ...(oauth && { oauth }) } },
}));
const run = (...rest) => execFileSync(OPENCODE, rest, { cwd: HOME, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
if (!existsSync(`${HOME}/.local/share/opencode/mcp-auth.json`)) run("mcp", "auth", "tests");
// Without colors.
const list = () => run("mcp", "list").replaceAll(/\x1b\[[0-9;?]*[a-z]/gi, "");
let printed = list();
// It asks the user to sign in again, and the user does.
if (/needs authentication/.test(printed)) {
  run("mcp", "auth", "tests");
  printed = list();
}
console.log(/\btests\b.*\bconnected\b/.test(printed) ? "called" : `failed: ${printed.replaceAll("\n", " ")}`);
