# One image for all services, because they share nearly all of their dependencies. The compose file and the Kubernetes manifests
# say which main.ts a container runs.

ARG NODE_IMAGE=node:24-bookworm-slim

FROM ${NODE_IMAGE} AS dependencies
WORKDIR /app
COPY package.json pnpm-lock.yaml pnpm-workspace.yaml ./
COPY packages/shared/package.json packages/shared/
COPY packages/fast-http/package.json packages/fast-http/
COPY packages/postgres/package.json packages/postgres/
COPY packages/postgres/patches packages/postgres/patches
COPY packages/client/package.json packages/client/
COPY packages/cli/package.json packages/cli/
COPY services/token-service/package.json services/token-service/
COPY services/accounting-gateway/package.json services/accounting-gateway/
COPY services/coordinator/package.json services/coordinator/
COPY services/demo-api/package.json services/demo-api/
COPY services/sandbox-provider/package.json services/sandbox-provider/
COPY services/webhook-receiver/package.json services/webhook-receiver/
COPY services/console/package.json services/console/
# Workspace packages must remain symbolic links, because Node strips no types below node_modules; `pnpm deploy` would copy them.
# The optional dependencies are a Node for machines with an older version, and what bundles the pages of the console.
# Corepack compares the downloaded pnpm with the hash in "packageManager".
# Of the package of the reference page only the bundle is served, 4 of 50 MB.
RUN corepack pnpm install \
      --frozen-lockfile --prod --no-optional --filter './services/*' --filter './packages/*' \
    && find node_modules/.pnpm/@scalar+api-reference@*/node_modules/@scalar -type f \
      ! -name standalone.js ! -name package.json -delete

# The program of the browser is bundled here, so that the image contains no bundler.
FROM dependencies AS browser
RUN corepack pnpm install --frozen-lockfile --filter @integration-host/console...
COPY packages/shared packages/shared
COPY services/console services/console
COPY docs/runbook.md docs/errors.md docs/
RUN node services/console/src/write-app.ts

FROM ${NODE_IMAGE}
LABEL org.opencontainers.image.title="integration-host" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Custody of OAuth grants, and durable processes of several steps"
ENV NODE_ENV=production
WORKDIR /app
COPY --from=dependencies /app ./
COPY packages packages
COPY services services
COPY --from=browser /app/services/console/dist services/console/dist
COPY LICENSE .
COPY scripts/init-volumes.ts scripts/init-provider.ts scripts/secret-file.ts scripts/backend-accounts.ts \
     scripts/installation-keys.ts scripts/container-health.sh scripts/
COPY deploy/definitions.json deploy/
RUN install -d -o node -g node /data .compile-cache
USER node
# Node keeps the compiled programs in this folder. Without them each service would strip the types of its sources at every
# start, which takes half a second and 20 MB of memory. The loop starts each program with a wrong setting, so that the
# program ends as soon as it is loaded.
ENV NODE_COMPILE_CACHE=/app/.compile-cache
RUN for main in services/*/src/main.ts packages/cli/src/main.ts; do PORT=none node "$main" >/dev/null 2>&1 || true; done
# Node is started directly, because npm would not forward SIGTERM.
# Without --disable-sigusr1, any process of the same user could open Node's inspector by sending SIGUSR1.
CMD ["node", "--disable-sigusr1", "--version"]
