# Caddy as a user of its own. Its ports are above 1024 here, so its program needs no capability.
FROM caddy:2.10.2
RUN setcap -r /usr/bin/caddy && adduser -S -D -H -u 10003 proxy && chown -R proxy /data /config
USER proxy
