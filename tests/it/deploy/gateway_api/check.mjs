// Checks the manifests of the Gateway API on standard input, a list in JSON, and prints "kind name" for each valid one.
//
// The package has the types, patterns and limits of the fields, generated from the source of the Gateway API. It has
// neither the names of all filters of the experimental channel nor the rules of CEL, and it ignores fields that it does
// not know. This script has these, as the definition of the experimental channel has them (v1.4 and later).

import { validate as isExternalAuth } from "@kubernetes-models/gateway-api/_schemas/IoK8sSigsGatewayApiApisV1HTTPExternalAuthFilter";
import { validate as isRoute } from "@kubernetes-models/gateway-api/_schemas/IoK8sSigsGatewayApiApisV1HTTPRoute";

const BACKEND = { group: 0, kind: 0, name: 0, namespace: 0, port: 0 };
const EXTERNAL_AUTH = {
  protocol: 0,
  backendRef: BACKEND,
  grpc: { allowedHeaders: 0 },
  http: { path: 0, allowedHeaders: 0, allowedResponseHeaders: 0 },
  forwardBody: { maxSize: 0 },
};
/// The fields that the manifests use, and their neighbours.
const ROUTE = {
  apiVersion: 0,
  kind: 0,
  metadata: 0,
  spec: {
    hostnames: 0,
    parentRefs: { group: 0, kind: 0, name: 0, namespace: 0, sectionName: 0, port: 0 },
    rules: {
      name: 0,
      matches: { path: { type: 0, value: 0 }, method: 0 },
      filters: {
        type: 0,
        externalAuth: EXTERNAL_AUTH,
        requestHeaderModifier: { set: 0, add: 0, remove: 0 },
      },
      backendRefs: { ...BACKEND, weight: 0 },
      timeouts: { request: 0, backendRequest: 0 },
    },
  },
};

function fail(place, message) {
  throw new Error(`${place}: ${message}`);
}

function checkNames(value, names, place) {
  if (names === 0) return;
  if (Array.isArray(value)) return value.forEach((item, at) => checkNames(item, names, `${place}[${at}]`));
  if (typeof value !== "object" || value === null) fail(place, "not an object");
  for (const [name, inner] of Object.entries(value)) {
    if (!(name in names)) fail(`${place}.${name}`, "unknown field");
    checkNames(inner, names[name], `${place}.${name}`);
  }
}

function checkTypes(validate, value, place) {
  if (!validate(value)) fail(place, JSON.stringify(validate.errors));
}

function checkBackend(backend, place) {
  const isService = (backend.group ?? "") === "" && (backend.kind ?? "Service") === "Service";
  if (isService && backend.port === undefined) fail(place, "a Service needs a port");
}

function checkFilter(filter, place) {
  if (filter.type === "RequestHeaderModifier") {
    if (filter.requestHeaderModifier === undefined) fail(place, "requestHeaderModifier is missing");
    return;
  }
  if (filter.type !== "ExternalAuth") fail(place, `a filter of type ${filter.type}`);
  const auth = filter.externalAuth ?? fail(place, "externalAuth is missing");
  checkTypes(isExternalAuth, auth, place);
  checkBackend(auth.backendRef, place);
  for (const [protocol, settings] of [["GRPC", "grpc"], ["HTTP", "http"]]) {
    const has = auth[settings] !== undefined;
    if (has !== (auth.protocol === protocol)) fail(place, `${settings} belongs to the protocol ${protocol}`);
  }
}

function checkRoute(route) {
  const place = route.metadata.name;
  checkNames(route, ROUTE, place);
  // The package does not know the type of the filter ExternalAuth.
  const known = (filters) => filters?.filter((filter) => filter.type === "RequestHeaderModifier");
  const rules = route.spec.rules.map(({ filters, ...rest }) => ({ ...rest, filters: known(filters) }));
  checkTypes(isRoute, { ...route, spec: { ...route.spec, rules } }, place);
  for (const rule of route.spec.rules) {
    rule.filters?.forEach((filter) => checkFilter(filter, place));
    rule.backendRefs.forEach((backend) => checkBackend(backend, place));
  }
}

let text = "";
for await (const piece of process.stdin) text += piece;
for (const manifest of JSON.parse(text)) {
  if (manifest.apiVersion !== "gateway.networking.k8s.io/v1" || manifest.kind !== "HTTPRoute") continue;
  checkRoute(manifest);
  console.log(`${manifest.kind} ${manifest.metadata.name}`);
}
