# Two images from one build:
#
#   docker build --target server -t owlclaw-mcp .          with Python, for applications with handlers
#   docker build --target bare -t owlclaw-mcp:bare .       skills, programs and HTTP services alone
#
# Both run as user 10001 without any right of their own, keep everything in /data, and listen on
# nothing until a configuration in /etc/owlclaw-mcp says so. See docs/installation.md.

FROM rust:1-bookworm AS build
WORKDIR /source
COPY . .
# The cache mounts keep what was compiled between builds; the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --profile dist --locked --package owlclaw-mcp --bins \
    && install -D --target-directory=/out target/dist/owlclaw-mcp target/dist/owlclaw

FROM debian:bookworm-slim AS bare
# The authorities that HTTP services, issuers of tokens and webhooks are checked against.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin owlclaw \
    && install --directory --owner=owlclaw --group=owlclaw --mode=0700 /data
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
# Not ready while it drains, so that a balancer looks elsewhere before it is gone.
STOPSIGNAL SIGTERM
ENTRYPOINT ["owlclaw-mcp"]
CMD ["start", "--config", "/etc/owlclaw-mcp/mcp-server.yaml"]

FROM python:3.12-slim-bookworm AS server
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin owlclaw \
    && install --directory --owner=owlclaw --group=owlclaw --mode=0700 /data
COPY --from=build /out/ /usr/local/bin/
# What Python compiles has no place to go in an image that is read-only.
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["owlclaw-mcp"]
CMD ["start", "--config", "/etc/owlclaw-mcp/mcp-server.yaml"]
