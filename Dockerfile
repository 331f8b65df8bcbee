# One image for all services: they share nearly every dependency, so one build and one set of layers serve
# them all; compose says which main.ts a container runs.

FROM node:24-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json pnpm-lock.yaml pnpm-workspace.yaml ./
COPY patches patches
COPY packages/shared/package.json packages/shared/
COPY packages/cli/package.json packages/cli/
COPY services/token-service/package.json services/token-service/
COPY services/accounting-gateway/package.json services/accounting-gateway/
COPY services/coordinator/package.json services/coordinator/
COPY services/demo-api/package.json services/demo-api/
COPY services/sandbox-provider/package.json services/sandbox-provider/
# The workspace layout stays: Node strips no types below node_modules, so packages must remain links (no pnpm deploy).
# The one optional package is a Node for machines with an older one.
RUN npx --yes "$(node -p "require('./package.json').packageManager")" install \
      --frozen-lockfile --prod --no-optional --filter './services/*' --filter './packages/*'

FROM node:24-bookworm-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=dependencies /app ./
COPY packages packages
COPY services services
COPY scripts/init-volumes.ts scripts/init-provider.ts scripts/secret-file.ts scripts/container-health.sh scripts/
COPY deploy/definitions.json deploy/
RUN install -d -o node -g node /data
USER node
# Node itself is process 1: npm would not pass SIGTERM on.
CMD ["node", "--version"]
