# The entrypoint of the image sources this file when it creates the database. It allows replication connections, which
# `all` in pg_hba.conf does not include.
echo 'host replication all all trust' >>"$PGDATA/pg_hba.conf"
