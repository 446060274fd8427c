-- Schema 1. Everything that came from a client, a plugin or a person is bytes: no encoding of the server is ever in its way.
create table meta (
  one boolean primary key default true check (one),
  version integer not null,
  program text not null
);
create table write_fence (
  one boolean primary key default true check (one),
  holder bytea not null,
  number bigint not null
) with (fillfactor = 50);
create table task (
  tenant bytea not null,
  requestor bytea not null,
  id bytea not null,
  revision bigint not null,
  ended boolean not null,
  attempt bigint not null,
  holder bytea,
  held_until bigint,
  created_at bigint not null,
  expires_at bigint,
  alias bytea,
  reserved bigint not null,
  record bytea not null,
  arguments bytea not null,
  output bytea,
  primary key (tenant, requestor, id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
alter table task
  alter record set storage external,
  alter arguments set storage external,
  alter output set storage external;
create index task_list on task (tenant, requestor, created_at desc, id);
create index task_expiry on task (expires_at, tenant, requestor, id) where expires_at is not null;
create unique index task_alias on task (tenant, requestor, alias) where alias is not null;
-- By `ended`, which changes once: a change of the phase leaves every index alone.
create index task_unfinished on task (tenant, requestor, id) where not ended;
create index task_id on task (id);
create table journal (
  tenant bytea not null,
  requestor bytea not null,
  id bytea not null,
  number bigint not null,
  value bytea not null,
  primary key (tenant, requestor, id, number)
) with (fillfactor = 90);
alter table journal alter value set storage external;
create index journal_heads on journal (tenant, requestor, id) where number = 0;
create table stored_row (
  kind smallint not null,
  key bytea not null,
  value bytea not null,
  primary key (kind, key)
) with (fillfactor = 90);
