# The server as a small image: built in one stage, run in another.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package xds-server --bin xds-server

FROM debian:bookworm-slim
COPY --from=build /src/target/release/xds-server /usr/local/bin/xds-server
COPY --from=build /src/LICENSE /usr/share/doc/xds-server/LICENSE
# Webhooks of rollouts are called over https with these authorities.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/xds-server xds && mkdir -p /etc/xds-server
USER xds
ENV XDS_SERVER_DATA_DIR=/var/lib/xds-server
VOLUME /var/lib/xds-server
# 18000 is xDS; 18002 has /healthz, /readyz and /metrics. The admin API is on 127.0.0.1:18001 of the container, for
# `docker exec`; elsewhere it needs --admin-listen and --admin-token-file.
EXPOSE 18000 18002
# SIGTERM drains the streams within --drain-timeout.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/xds-server"]
# xDS is plaintext and holds private keys: publish the port to networks you trust. A command of your own replaces all of this.
CMD ["serve", "--watch=/etc/xds-server", "--xds-listen=0.0.0.0:18000", "--allow-plaintext-xds", "--probe-listen=0.0.0.0:18002"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/local/bin/xds-server", "health"]
