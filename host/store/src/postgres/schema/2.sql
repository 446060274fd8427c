-- Schema 2. What hosts know of one another that work with one schema at the same time. A host that is alone uses none of it.
alter table meta add column is_counted boolean not null default false;
-- Which version of a plugin a task needs, as a digest: a host that lacks it claims none of them.
alter table task add column version bytea;
create table host (
  id bytea primary key,
  name text not null,
  program text not null,
  is_dead boolean not null default false,
  started timestamptz not null default clock_timestamp(),
  alive_until timestamptz not null
) with (fillfactor = 50);
-- The fence of each of them. A host that was declared dead has none, and so writes nothing.
create table host_fence (
  host bytea primary key,
  number bigint not null
) with (fillfactor = 50);
-- What requestors have stored; under a requestor of 16 zeros, their tenant.
create table stored_usage (
  tenant bytea not null,
  requestor bytea not null,
  tasks bigint not null,
  bytes bigint not null,
  primary key (tenant, requestor)
) with (fillfactor = 50);
-- Tasks that one host holds and another one has changed. Lost with a crash of the server, after which each host looks at all.
create unlogged table letter (
  number bigserial primary key,
  host bytea not null,
  tenant bytea not null,
  requestor bytea not null,
  id bytea not null
);
create index letter_host on letter (host, number);
