# The server as a small image: built in one stage, run in another.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package xds-server --bin xds-server

FROM debian:bookworm-slim
COPY --from=build /src/target/release/xds-server /usr/local/bin/xds-server
# Whom webhooks of rollouts are believed over https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/xds-server xds
USER xds
ENV XDS_SERVER_DATA_DIR=/var/lib/xds-server
VOLUME /var/lib/xds-server
EXPOSE 18000 18001
# SIGTERM drains the streams within --drain-timeout.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/xds-server"]
CMD ["serve", "--watch", "/etc/xds-server"]
