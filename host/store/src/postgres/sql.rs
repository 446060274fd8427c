//! The statements, each prepared once for a connection.
//!
//! Owns all SQL that reads or writes data. Must not build a statement from a value: values are parameters. Invariant:
//! every statement that a group writes with is followed by others only in a fixed order, the one in which
//! [`super::writes`] sends them.

/// Whole tasks in the order of their names, with the columns of [`Sql::LoadTasks`] first. This and what follows is for
/// an operator's command and prepared when that is given.
pub(super) const WHOLE_TASKS: &str =
    "select tenant, requestor, id, revision, ended, attempt, holder, held_until, created_at, expires_at,
    alias, reserved, octet_length(record)::bigint, octet_length(arguments)::bigint, octet_length(output)::bigint,
    record, arguments, output
    from task where (tenant, requestor, id) > ($1, $2, $3) order by tenant, requestor, id limit $4";
/// Journals that have no task.
pub(super) const JOURNALS_WITHOUT_TASK: &str = "select distinct j.tenant, j.requestor, j.id from journal j
    where not exists (select from task t where t.tenant = j.tenant and t.requestor = j.requestor and t.id = j.id)
    order by 1, 2, 3 limit $1";
/// Whether there is anything in a store.
pub(super) const IS_EMPTY: &str = "select not exists (select from task) and not exists (select from journal)
    and not exists (select from stored_row)";
/// What an export brings: a key that is there is an error.
pub(super) const IMPORT_JOURNAL_ROWS: &str = "insert into journal (tenant, requestor, id, number, value)
    select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[])";
pub(super) const IMPORT_ROWS: &str = "insert into stored_row (kind, key, value)
    select * from unnest($1::smallint[], $2::bytea[], $3::bytea[])";

/// Components of plugins. They are written beside the groups: who reads one knows it by its digest.
pub(super) const PUT_COMPONENT: &str =
    "insert into component (digest, part, bytes) values ($1, $2, $3) on conflict do nothing";
pub(super) const REMOVE_COMPONENT: &str = "delete from component where digest = $1";

macro_rules! statements {
    ($($name:ident: $text:literal;)*) => {
        /// One of the statements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Sql { $($name),* }

        /// Their texts, in the order of [`Sql`].
        pub(super) const TEXTS: &[&str] = &[$($text),*];
    };
}

statements! {
    // The fence of the committer.
    FenceTake: "insert into write_fence (holder, number) values ($1, 1)
        on conflict (one) do update set holder = excluded.holder, number = write_fence.number + 1 returning number";
    FenceAdvance: "update write_fence set number = number + 1 where holder = $1 and number = $2";
    FenceResolve: "update write_fence set number = number + 2 where holder = $1 returning number - 2";
    // The same of one host among several.
    HostFenceAdvance: "update host_fence set number = number + 1 where host = $1 and number = $2";
    HostFenceResolve: "update host_fence set number = number + 2 where host = $1 returning number - 2";
    // Others wait at these until the group is over, also where it looks for what is not there.
    LockStripes: "select pg_advisory_xact_lock($1::int, w.stripe) from unnest($2::int[]) as w(stripe)";
    LoadUsage: "select u.tenant, u.requestor, u.tasks, u.bytes from unnest($1::bytea[], $2::bytea[]) as w(tenant, requestor)
        join stored_usage u on u.tenant = w.tenant and u.requestor = w.requestor";

    // What a group looks at before it decides.
    LoadTasks: "select t.tenant, t.requestor, t.id, t.revision, t.ended, t.attempt, t.holder, t.held_until, t.created_at, t.expires_at,
        t.alias, t.reserved, octet_length(t.record)::bigint, octet_length(t.arguments)::bigint, octet_length(t.output)::bigint
        from unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, id)
        join task t on t.tenant = w.tenant and t.requestor = w.requestor and t.id = w.id";
    LoadAliases: "select t.tenant, t.requestor, t.id, t.alias
        from unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, alias)
        join task t on t.tenant = w.tenant and t.requestor = w.requestor and t.alias = w.alias";
    LoadJournals: "select j.tenant, j.requestor, j.id, j.value
        from unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, id)
        join journal j on j.tenant = w.tenant and j.requestor = w.requestor and j.id = w.id and j.number = 0";
    LoadRows: "select r.kind, r.key, r.value from unnest($1::smallint[], $2::bytea[]) as w(kind, key)
        join stored_row r on r.kind = w.kind and r.key = w.key";

    // What a group writes.
    DeleteTasks: "delete from task t using unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, id)
        where t.tenant = w.tenant and t.requestor = w.requestor and t.id = w.id";
    UpdateTasks: "update task t set revision = w.revision, ended = w.ended, attempt = w.attempt, holder = w.holder,
        held_until = w.held_until, expires_at = w.expires_at, alias = w.alias, reserved = w.reserved, record = w.record,
        output = coalesce(w.output, t.output)
        from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::boolean[], $6::bigint[], $7::bytea[], $8::bigint[],
            $9::bigint[], $10::bytea[], $11::bigint[], $12::bytea[], $13::bytea[])
        as w(tenant, requestor, id, revision, ended, attempt, holder, held_until, expires_at, alias, reserved, record, output)
        where t.tenant = w.tenant and t.requestor = w.requestor and t.id = w.id";
    InsertTasks: "insert into task (tenant, requestor, id, revision, ended, attempt, holder, held_until, expires_at, alias, reserved,
            record, output, created_at, arguments, version)
        select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::boolean[], $6::bigint[], $7::bytea[],
            $8::bigint[], $9::bigint[], $10::bytea[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bigint[], $15::bytea[],
            $16::bytea[])";
    ClearJournals: "delete from journal j using unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, id)
        where j.tenant = w.tenant and j.requestor = w.requestor and j.id = w.id";
    DeleteJournalRows: "delete from journal j
        using unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[]) as w(tenant, requestor, id, number)
        where j.tenant = w.tenant and j.requestor = w.requestor and j.id = w.id and j.number = w.number";
    PutJournalRows: "insert into journal (tenant, requestor, id, number, value)
        select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[])
        on conflict (tenant, requestor, id, number) do update set value = excluded.value";
    DeleteRows: "delete from stored_row r using unnest($1::smallint[], $2::bytea[]) as w(kind, key)
        where r.kind = w.kind and r.key = w.key";
    PutRows: "insert into stored_row (kind, key, value) select * from unnest($1::smallint[], $2::bytea[], $3::bytea[])
        on conflict (kind, key) do update set value = excluded.value";
    AddUsage: "insert into stored_usage (tenant, requestor, tasks, bytes)
        select * from unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])
        on conflict (tenant, requestor)
        do update set tasks = stored_usage.tasks + excluded.tasks, bytes = stored_usage.bytes + excluded.bytes";
    LoadHeld: "select h.tenant, h.requestor, h.host = $1, sum(h.queued)::bigint, sum(h.running)::bigint, sum(h.paused)::bigint,
            bool_or(h.is_awaited)
        from unnest($2::bytea[], $3::bytea[]) as w(tenant, requestor)
        join held_tasks h on h.tenant = w.tenant and h.requestor = w.requestor group by 1, 2, 3
        union all
        select h.tenant, null::bytea, h.host = $1, sum(h.queued)::bigint, sum(h.running)::bigint, sum(h.paused)::bigint, false
        from held_tasks h where h.tenant = any($2::bytea[]) group by 1, 3";
    DeleteHeld: "delete from held_tasks h using unnest($2::bytea[], $3::bytea[]) as w(tenant, requestor)
        where h.host = $1 and h.tenant = w.tenant and h.requestor = w.requestor";
    PutHeld: "insert into held_tasks (host, tenant, requestor, queued, running, paused, is_awaited)
        select $1::bytea, * from unnest($2::bytea[], $3::bytea[], $4::integer[], $5::integer[], $6::integer[], $7::boolean[])
        on conflict (tenant, requestor, host) do update set queued = excluded.queued, running = excluded.running,
            paused = excluded.paused, is_awaited = excluded.is_awaited";
    AdvanceRowChanges: "insert into row_change (kind, number) select w.kind, 1 from unnest($1::smallint[]) as w(kind) order by w.kind
        on conflict (kind) do update set number = row_change.number + 1";
    PutLetters: "insert into letter (host, tenant, requestor, id) select distinct w.host, w.tenant, w.requestor, w.id
        from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[]) as w(host, tenant, requestor, id)
        join host h on h.id = w.host and not h.is_dead";

    // Hosts. Whether one lives is decided by the server's clock alone.
    Beat: "update host set alive_until = clock_timestamp() + $2::bigint * interval '1 millisecond' where id = $1 and not is_dead";
    Living: "select count(*) from host where not is_dead";
    Bury: "with dead as (update host set is_dead = true where id in (
            select id from host where not is_dead and alive_until < clock_timestamp() and id <> $1 for update skip locked) returning id, name),
        fences as (delete from host_fence where host in (select id from dead)),
        letters as (delete from letter where host in (select id from dead)),
        held as (delete from held_tasks where host in (select id from dead)),
        messages as (delete from message where host in (select id from dead))
        select name from dead";
    ForgetDead: "delete from host h where h.is_dead and h.alive_until < clock_timestamp() - interval '1 hour'
        and not exists (select from task t where not t.ended and t.holder = h.id)";
    Dead: "select id from host where is_dead";
    Free: "select tenant, requestor, id, holder, held_until, record, revision from task
        where not ended and (holder is null or holder = any($1::bytea[])) and (version is null or version <> all($2::bytea[]))
        order by created_at, tenant, requestor, id limit $3";
    Letters: "with handled as (delete from letter where host = $1 and number = any($2::bigint[]))
        select tenant, requestor, id, number from letter where host = $1 and number <> all($2::bigint[]) order by number limit $3";
    RowChanges: "select kind, number from row_change";
    Component: "select bytes from component where digest = $1 and part = $2";
    SendMessage: "insert into message (host, body) select h.id, $3 from host h
        where not h.is_dead and h.id <> $1 and ($2::bytea is null or h.id = $2)
        and (select count(*) < $4 and coalesce(sum(octet_length(m.body)), 0) < $5 from message m where m.host = h.id)
        returning number";
    TakeMessages: "delete from message where number in (
            select number from (select number, sum(octet_length(body)) over (order by number) - octet_length(body) as before
                from message where host = $1 order by number limit $2) w where w.before < $3)
        returning number, body";
    Revisions: "select t.tenant, t.requestor, t.id, t.revision
        from unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, id)
        join task t on t.tenant = w.tenant and t.requestor = w.requestor and t.id = w.id";
    UnfinishedOf: "select t.tenant, t.requestor, t.id, t.revision from unnest($1::bytea[], $2::bytea[]) as w(tenant, requestor)
        join task t on t.tenant = w.tenant and t.requestor = w.requestor and not t.ended limit $3";
    UsageOf: "select requestor, tasks, bytes from stored_usage where tenant = $1 and requestor = any($2::bytea[])";

    // Reads.
    Record: "select record from task where tenant = $1 and requestor = $2 and id = $3";
    RecordAndOutput: "select record, output from task where tenant = $1 and requestor = $2 and id = $3";
    Arguments: "select arguments from task where tenant = $1 and requestor = $2 and id = $3";
    Output: "select output from task where tenant = $1 and requestor = $2 and id = $3";
    RecordById: "select record from task where id = $1 order by tenant, requestor limit 1";
    TaskOfAlias: "select id from task where tenant = $1 and requestor = $2 and alias = $3";
    ListFirst: "select record from task where tenant = $1 and requestor = $2 order by created_at desc, id limit $3";
    ListAfter: "select record from task where tenant = $1 and requestor = $2 and created_at <= $3 and (created_at < $3 or id > $4)
        order by created_at desc, id limit $5";
    Unfinished: "select tenant, requestor, id, holder, held_until from task
        where not ended and (tenant, requestor, id) > ($1, $2, $3) order by tenant, requestor, id limit $4";
    Records: "select t.tenant, t.requestor, t.id, t.record, t.holder, t.held_until
        from unnest($1::bytea[], $2::bytea[], $3::bytea[]) as w(tenant, requestor, id)
        join task t on t.tenant = w.tenant and t.requestor = w.requestor and t.id = w.id order by t.tenant, t.requestor, t.id";
    Expired: "select tenant, requestor, id from task where expires_at <= $1 order by expires_at, tenant, requestor, id limit $2";
    NextExpiry: "select min(expires_at) from task";
    TasksOfTenant: "select requestor, id from task where tenant = $1 order by requestor, id limit $2";
    Scan: "select record from task where (tenant, requestor, id) > ($1, $2, $3) order by tenant, requestor, id limit $4";
    JournalRows: "select number, value from journal where tenant = $1 and requestor = $2 and id = $3 order by number";
    JournalHead: "select value from journal where tenant = $1 and requestor = $2 and id = $3 and number = 0";
    JournalsAfter: "select tenant, requestor, id, number, value from journal where (tenant, requestor, id, number) > ($1, $2, $3, $4)
        order by tenant, requestor, id, number limit $5";
    Row: "select value from stored_row where kind = $1 and key = $2";
    RowsFirst: "select key, value from stored_row where kind = $1 order by key limit $2";
    RowsAfter: "select key, value from stored_row where kind = $1 and key > $2 order by key limit $3";
    UsageOfTasks: "select tenant, requestor, count(*), sum(octet_length(record)::bigint + octet_length(arguments)
        + coalesce(octet_length(output), reserved))::bigint from task group by tenant, requestor";
    HeadsOfJournals: "select tenant, requestor, id, value from journal where number = 0";
}
