// An issuer of tokens that others have written: oidc-provider, which is certified for OpenID Connect.
// Everybody signs in as `ana`, and whoever asks is registered. Tokens are JWTs (RFC 9068) for the
// resource that was asked for (RFC 8707), but for the resource OPAQUE, whose tokens this issuer alone can read (RFC 7662).
//
// ROBOT is the public key, a JWK, of a client `robot` that proves itself with it; SECONDS is how long an access or ID token lasts.
//
// Prints its address, then a line for each line that it reads: `rotate` has it sign with a new key
// from then on and forget the one before, but none of its clients.

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

// As issuers with several tenants have it.
const MOUNT = "/tenants/bank";
const SIGNS_IN = "ana";
const SCOPES = "mcp";

const SECONDS = Number(process.env.SECONDS ?? 300);
const ROBOTS = process.env.ROBOT
  ? [
      {
        client_id: "robot",
        token_endpoint_auth_method: "private_key_jwt",
        jwks: { keys: [JSON.parse(process.env.ROBOT)] },
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
    ]
  : [];

// What it notes of its configuration is for people.
console.info = console.error;

const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}${MOUNT}`;

function newKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" };
}

// Metadata of clients that have registered. Each provider has a store of its own, and forgets what others were told.
const registered = [];

function provide(key) {
  const provider = new Provider(issuer, {
    jwks: { keys: [key] },
    // What clients may register for, besides what resources have.
    scopes: ["openid", "offline_access", SCOPES],
    cookies: { keys: [randomUUID()] },
    ttl: { IdToken: SECONDS },
    // One that is known beforehand, for programs.
    clients: [
      {
        client_id: "program",
        client_secret: "not-a-secret",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
      ...ROBOTS,
      ...registered,
    ],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      // Tokens are bound to a key where a client brings a proof of one (RFC 9449).
      dPoP: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope: SCOPES,
          audience: resource,
          accessTokenFormat: resource === process.env.OPAQUE ? "opaque" : "jwt",
          accessTokenTTL: SECONDS,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
    interactions: { url: (_, interaction) => `${issuer}/interaction/${interaction.uid}` },
    // Whatever is asked for is granted.
    loadExistingGrant: async (context) => {
      const { client, session, resourceServers } = context.oidc;
      const grant = new context.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope([...context.oidc.requestParamOIDCScopes].join(" "));
      for (const resource of Object.keys(resourceServers ?? {})) {
        grant.addResourceScope(resource, SCOPES);
      }
      await grant.save();
      return grant;
    },
  });
  provider.on("registration_create.success", (_, client) => registered.push(client.metadata()));
  const answer = provider.callback();
  return async (request, response) => {
    request.originalUrl = request.url;
    request.url = request.url.slice(MOUNT.length);
    if (request.url.startsWith("/interaction/")) {
      // Programs on somebody's own machine are agreed to each time.
      const result = { login: { accountId: SIGNS_IN }, consent: {} };
      await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    } else {
      await answer(request, response);
    }
  };
}

let current = provide(newKey());
server.on("request", (request, response) => {
  if (!request.url.startsWith(`${MOUNT}/`)) {
    response.writeHead(404).end();
    return;
  }
  current(request, response).catch((error) => {
    console.error(error);
    response.writeHead(500).end();
  });
});
console.log(issuer);
createInterface({ input: process.stdin })
  .on("line", () => {
    current = provide(newKey());
    console.log("rotated");
  })
  .on("close", () => process.exit(0));
