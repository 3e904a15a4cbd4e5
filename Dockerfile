# The server as an image that has nothing but the server: one static binary, no shell, no libraries.
#
# Run it read-only; it writes to its volume alone:
#
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges -v state:/var/lib/xds-server -v ./routes:/etc/xds-server:ro -p 18000:18000 xds-server
FROM rust:1.95-alpine AS build
# Programs for musl are linked statically. The C compiler is for ring, zstd and the allocator.
RUN apk add --no-cache build-base ca-certificates
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package xds-server --bin xds-server && strip target/release/xds-server
RUN mkdir /empty

FROM scratch
COPY --from=build /src/target/release/xds-server /usr/local/bin/xds-server
COPY --from=build /src/LICENSE /usr/share/doc/xds-server/LICENSE
# Webhooks of rollouts are called over https with these authorities.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# A new volume gets its owner from here.
COPY --from=build --chown=65534:65534 /empty /var/lib/xds-server
# Nobody, by number: Kubernetes takes no name for a user that is not root.
USER 65534:65534
ENV PATH=/usr/local/bin
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
