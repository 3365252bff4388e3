// The TypeScript client of MCP: node typescript.mjs new|old. SERVER: the URL of the MCP server. CLIENT_ID and DOCUMENT:
// a client that the operator has registered, or the URL of one's document. Without both, it registers itself.

import { callForEachLine, redirect } from "./callback.mjs";

const sdk = "@modelcontextprotocol/sdk/client";
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = process.argv[2] === "new"
  ? await import("@modelcontextprotocol/client")
  : { ...await import(`${sdk}/index.js`), ...await import(`${sdk}/streamableHttp.js`), ...await import(`${sdk}/auth.js`) };
const { SERVER, CLIENT_ID, DOCUMENT } = process.env;

const { uri, open } = await redirect();
const kept = { client: CLIENT_ID && { client_id: CLIENT_ID } };
const authProvider = {
  redirectUrl: uri,
  clientMetadataUrl: DOCUMENT,
  clientMetadata: { client_name: "A client in TypeScript", redirect_uris: [uri], token_endpoint_auth_method: "none" },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  redirectToAuthorization: (url) => { kept.url = url; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  invalidateCredentials: (what) => { if (what === "all" || what === "tokens") delete kept.tokens; },
};

let client;
const connect = async () => {
  const transport = new StreamableHTTPClientTransport(new URL(SERVER), { authProvider });
  client = new Client({ name: "tests", version: "1" });
  await client.connect(transport);
};
const signIn = async () => {
  const transport = new StreamableHTTPClientTransport(new URL(SERVER), { authProvider });
  const { searchParams: answer } = await open(kept.url);
  await transport.finishAuth(answer.get("code"), answer.get("iss"));
};
// The call after one that failed begins again, with a new connection.
const call = async () => {
  try {
    if (!client) await connect();
    await client.listTools();
  } catch (error) {
    await client.close();
    client = undefined;
    if (!(error instanceof UnauthorizedError)) throw error;
    await signIn();
    await connect();
    await client.listTools();
  }
};

await callForEachLine(call);
