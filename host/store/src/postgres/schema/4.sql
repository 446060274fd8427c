-- Schema 4. What hosts tell one another that is in no record: of clients, streams and lists. Lost with a crash of the server.
create unlogged table message (
  number bigserial primary key,
  host bytea not null,
  body bytea not null
);
create index message_host on message (host, number);
