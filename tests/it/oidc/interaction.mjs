// The sign-in page. With `account` in the settings it signs in without a page.

const page = (error) => `<!doctype html><title>Sign in</title>
<form method="post"><label>Name <input name="login" autofocus></label><button>Sign in</button> ${error}</form>`;

const form = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return new URLSearchParams(Buffer.concat(parts).toString());
};

/** Responds if the path is that of the page. */
export const interaction = async (site, path, request, response) => {
  if (!path.startsWith("/interaction/")) return false;
  const { provider } = site;
  const finish = (result) => provider.interactionFinished(request, response, result);
  try {
    const { params, prompt } = await provider.interactionDetails(request, response);
    const given = params.login_hint ?? site.account;
    const named = request.method === "POST" ? (await form(request)).get("login") : given;
    if (named === "deny") {
      await finish({ error: "access_denied", error_description: "the user said no" });
    } else if (prompt.name === "consent" || Object.hasOwn(site.accounts, named ?? "")) {
      await finish({ login: named && { accountId: named }, consent: {} });
    } else {
      response.writeHead(200, { "content-type": "text/html" }).end(page(named ? "Unknown name" : ""));
    }
  } catch (error) {
    response.writeHead(400, { "content-type": "text/plain" }).end(String(error));
  }
  return true;
};
