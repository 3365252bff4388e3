"""FastMCP's proxy of OAuth, with a server of MCP behind it. ISSUER: the OpenID provider. PORT: where it listens, with
the certificate of its folder. It keeps its clients and its tokens in files in HOME."""

import os

from fastmcp import FastMCP
from fastmcp.server.auth.oidc_proxy import OIDCProxy

PORT = os.environ["PORT"]

auth = OIDCProxy(
    config_url=f"{os.environ['ISSUER']}/.well-known/openid-configuration",
    strict=False,
    client_id="gateway",
    client_secret=os.environ["SECRET"],
    base_url=f"https://localhost:{PORT}",
    redirect_path="/oauth2/callback/main",
    required_scopes=["openid"],
    valid_scopes=["openid", "offline_access"],
    extra_authorize_params={"prompt": "consent", "scope": "openid offline_access"},
    # The access tokens of the provider are opaque.
    verify_id_token=True,
    forward_resource=False,
    # It refuses documents at private addresses, such as those of a test, without a setting.
    enable_cimd=False,
    fastmcp_access_token_expiry_seconds=int(os.environ["ACCESS_LIFETIME"]),
)
server = FastMCP("tests", auth=auth)


@server.tool
def hello() -> str:
    return "hello"


server.run(
    transport="http",
    host="127.0.0.1",
    port=int(PORT),
    path="/mcp",
    show_banner=False,
    uvicorn_config={"ssl_certfile": "site.pem", "ssl_keyfile": "site.key"},
)
