# Sourced by the image when it creates the database: `all` in pg_hba.conf does not include replication.
echo 'host replication all all trust' >>"$PGDATA/pg_hba.conf"
