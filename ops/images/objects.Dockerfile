# The S3 server (Versity's gateway over a folder) as a user of its own, with its keys from files.
FROM versity/versitygw:v1.8.0
RUN adduser -S -D -H -u 10002 objects && mkdir /objects && chown objects /objects
COPY ops/images/objects.sh /usr/local/bin/
USER objects
ENTRYPOINT ["/bin/sh", "/usr/local/bin/objects.sh"]
