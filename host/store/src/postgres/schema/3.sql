-- Schema 3. How many tasks of a requestor each host has in the states that are limited over all hosts; nothing of those that have none.
create table held_tasks (
  tenant bytea not null,
  requestor bytea not null,
  host bytea not null,
  queued integer not null,
  running integer not null,
  paused integer not null,
  -- Some wait there for others to end.
  is_awaited boolean not null,
  primary key (tenant, requestor, host)
) with (fillfactor = 50);
-- How often rows of a kind were changed, of the kinds that hosts keep in memory.
create table row_change (
  kind smallint primary key,
  number bigint not null
) with (fillfactor = 50);
-- Components of plugins by their SHA-256, in parts; the last part to be written, -1, says how many there are, and has what came with them.
create table component (
  digest bytea not null,
  part integer not null,
  bytes bytea not null,
  primary key (digest, part)
);
alter table component alter bytes set storage external;
