// The backend of the recipes in deploy/streams.md. Prints its port.

import { createServer } from "http";
import { buildSchema } from "graphql";
import { useServer } from "graphql-ws/use/ws";
import { Server } from "socket.io";
import { WebSocketServer } from "ws";

const http = createServer();
new Server(http, { destroyUpgrade: false })
  .on("connection", (socket) => socket.emit("subject", socket.handshake.headers["x-auth-subject"]));

const graphql = new WebSocketServer({ noServer: true });
useServer({
  schema: buildSchema("type Query { subject: String }"),
  context: (ctx) => ({ subject: ctx.extra.request.headers["x-auth-subject"] }),
  roots: { query: { subject: (_, context) => context.subject } },
}, graphql);
http.on("upgrade", (request, socket, head) => {
  if (request.url === "/graphql") {
    graphql.handleUpgrade(request, socket, head, (opened) => graphql.emit("connection", opened, request));
  }
});
http.listen(0, "127.0.0.1", () => console.log(http.address().port));
