//! What tenants used and how tools were called, by day.
//!
//! Owns one row for each tenant and day (UTC) and one for each tool and day, among those of [`RowKind::UsedToken`].
//! Must not know who counts, or when a day begins. Invariant: what was added is added once, and there are at most
//! [`USAGE_DAYS_MAX`] days of a tenant or a tool before a sweep has been over all of them, and none older than that
//! after it.

use std::sync::Arc;

use super::{Error, RowKind, RowState, Store};
use bulkhead_domain::requestor::TenantId;

/// Place, tenant, day → what was used. The places before belong to [`super::replay_guard`].
const USAGE: u8 = b'2';
/// Place, plugin, 0, day, tool → how often it was called.
pub(super) const TOOL_USAGE: u8 = b'3';
/// Days that are kept: today and those before.
pub const USAGE_DAYS_MAX: u32 = 90;
/// The first version of a row.
const FIRST: u8 = 1;
/// Rows that are read in one step.
const PAGE_ROWS: usize = 256;

/// What a tenant used in one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayUsage {
    /// Calls that ended, plain ones and tasks.
    pub calls: u64,
    /// CPU time of its calls.
    pub cpu_us: u64,
    /// Of requests.
    pub bytes_in: u64,
    /// Of answers.
    pub bytes_out: u64,
    /// The most that it had stored at any of the looks.
    pub stored_bytes: u64,
}

impl DayUsage {
    /// Both together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(more.calls),
            cpu_us: self.cpu_us.saturating_add(more.cpu_us),
            bytes_in: self.bytes_in.saturating_add(more.bytes_in),
            bytes_out: self.bytes_out.saturating_add(more.bytes_out),
            stored_bytes: self.stored_bytes.max(more.stored_bytes),
        }
    }

    fn encode(self) -> Vec<u8> {
        let Self { calls, cpu_us, bytes_in, bytes_out, stored_bytes } = self;
        let numbers = [calls, cpu_us, bytes_in, bytes_out, stored_bytes].map(u64::to_be_bytes);
        [&[FIRST][..], numbers.as_flattened()].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let [calls, cpu_us, bytes_in, bytes_out, stored_bytes] = decode_numbers(bytes)?;
        Ok(Self { calls, cpu_us, bytes_in, bytes_out, stored_bytes })
    }
}

/// How often a tool was called in one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolUsage {
    /// Calls that ended.
    pub calls: u64,
    /// Those of them that were errors.
    pub errors: u64,
}

impl ToolUsage {
    fn plus(self, more: Self) -> Self {
        Self { calls: self.calls.saturating_add(more.calls), errors: self.errors.saturating_add(more.errors) }
    }

    fn encode(self) -> Vec<u8> {
        [&[FIRST][..], [self.calls, self.errors].map(u64::to_be_bytes).as_flattened()].concat()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let [calls, errors] = decode_numbers(bytes)?;
        Ok(Self { calls, errors })
    }
}

/// A tool's usage of a day, the day counted from 1970-01-01.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDay {
    pub plugin: String,
    /// None: what else the plugin was called for.
    pub tool: Option<String>,
    pub day: u32,
    pub usage: ToolUsage,
}

/// The numbers of a row after its version.
fn decode_numbers<const COUNT: usize>(bytes: &[u8]) -> Result<[u64; COUNT], Error> {
    let damaged = || Error::Corrupt("a row of usage cannot be read".to_owned());
    let (version, numbers) = bytes.split_first().ok_or_else(damaged)?;
    if *version != FIRST {
        return Err(Error::Corrupt(format!(
            "a row of usage has version {version}; this program reads up to {FIRST}: use a newer one"
        )));
    }
    let (numbers, []) = numbers.as_chunks() else { return Err(damaged()) };
    let numbers = <[[u8; 8]; COUNT]>::try_from(numbers).map_err(|_| damaged())?;
    Ok(numbers.map(u64::from_be_bytes))
}

/// A tenant's usage of a day, the day counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantDay {
    pub tenant: TenantId,
    pub day: u32,
    pub usage: DayUsage,
}

fn prefix(tenant: TenantId) -> Vec<u8> {
    [&[USAGE][..], &tenant.0].concat()
}

fn key(tenant: TenantId, day: u32) -> Vec<u8> {
    [&prefix(tenant)[..], &day.to_be_bytes()].concat()
}

/// Whose row of which day it is; `None` for every other row.
fn read_key(row: &[u8]) -> Option<(TenantId, u32)> {
    let (tenant, day) = row.strip_prefix(&[USAGE])?.split_first_chunk()?;
    Some((TenantId(*tenant), u32::from_be_bytes(day.try_into().ok()?)))
}

/// Everything of a plugin. No name holds a 0.
fn plugin_prefix(plugin: &str) -> Vec<u8> {
    [&[TOOL_USAGE][..], plugin.as_bytes(), &[0]].concat()
}

fn tool_key(plugin: &str, day: u32, tool: Option<&str>) -> Vec<u8> {
    [&plugin_prefix(plugin)[..], &day.to_be_bytes(), tool.unwrap_or_default().as_bytes()].concat()
}

/// Plugin, day and tool of a row; `None` for every other row.
fn read_tool_key(row: &[u8]) -> Option<(&str, u32, &str)> {
    let rest = row.strip_prefix(&[TOOL_USAGE])?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (plugin, rest) = rest.split_at_checked(end)?;
    let (day, tool) = rest.get(1..)?.split_first_chunk()?;
    Some((str::from_utf8(plugin).ok()?, u32::from_be_bytes(*day), str::from_utf8(tool).ok()?))
}

/// The day of a row, whatever it counts.
fn day_of(row: &[u8]) -> Option<u32> {
    read_key(row).map(|(_, day)| day).or_else(|| read_tool_key(row).map(|(_, day, _)| day))
}

/// The rows of usage.
pub struct UsageDays {
    rows: Arc<dyn Store>,
}

impl UsageDays {
    pub fn new(rows: Arc<dyn Store>) -> Self {
        Self { rows }
    }

    /// Adds to what a tenant used in a day. Durable on return.
    ///
    /// # Errors
    ///
    /// When the store fails; nothing was added then. [`Error::Conflict`] when another writer added at the same time.
    pub async fn add(&self, tenant: TenantId, day: u32, usage: DayUsage) -> Result<(), Error> {
        let key = key(tenant, day);
        let before = self.rows.row(RowKind::UsedToken, &key).await?;
        let known = before.as_deref().map(DayUsage::decode).transpose()?.unwrap_or_default();
        let after = known.plus(usage).encode();
        let expected: Vec<RowState> = vec![(key.clone(), before)];
        self.rows.change_rows(RowKind::UsedToken, expected, vec![(key, Some(after))], None).await
    }

    /// The usage since a day, of one tenant or of all, by tenant and day: at most so many rows, and whether there are
    /// more.
    ///
    /// # Errors
    ///
    /// When the store fails, or a row cannot be read.
    pub async fn list(
        &self,
        tenant: Option<TenantId>,
        since_day: u32,
        count_max: usize,
    ) -> Result<(Vec<TenantDay>, bool), Error> {
        let mut days = Vec::new();
        let mut after = tenant.map_or_else(|| vec![USAGE], prefix);
        loop {
            let page = self.rows.rows(RowKind::UsedToken, Some(&after), PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok((days, false)) };
            after = last.clone();
            for (row, value) in page {
                let Some((of, day)) = read_key(&row) else { return Ok((days, false)) };
                if tenant.is_some_and(|tenant| tenant != of) {
                    return Ok((days, false));
                }
                if day < since_day {
                    continue;
                }
                if days.len() == count_max {
                    return Ok((days, true));
                }
                days.push(TenantDay { tenant: of, day, usage: DayUsage::decode(&value)? });
            }
        }
    }

    /// Adds to how often a tool was called in a day. Durable on return.
    ///
    /// # Errors
    ///
    /// When the store fails; nothing was added then. [`Error::Conflict`] when another writer added at the same time.
    pub async fn add_tool(&self, added: &ToolDay) -> Result<(), Error> {
        let ToolDay { plugin, tool, day, usage } = added;
        let key = tool_key(plugin, *day, tool.as_deref());
        let before = self.rows.row(RowKind::UsedToken, &key).await?;
        let known = before.as_deref().map(ToolUsage::decode).transpose()?.unwrap_or_default();
        let after = known.plus(*usage).encode();
        let expected: Vec<RowState> = vec![(key.clone(), before)];
        self.rows.change_rows(RowKind::UsedToken, expected, vec![(key, Some(after))], None).await
    }

    /// How the tools of a plugin were called since a day, by day and tool: at most so many rows, and whether there are
    /// more.
    ///
    /// # Errors
    ///
    /// When the store fails, or a row cannot be read.
    pub async fn list_tools(
        &self,
        plugin: &str,
        since_day: u32,
        count_max: usize,
    ) -> Result<(Vec<ToolDay>, bool), Error> {
        let mut days = Vec::new();
        let mut after = [&plugin_prefix(plugin)[..], &since_day.to_be_bytes()].concat();
        // What has no tool is the first row of its day, at that very key.
        if let Some(value) = self.rows.row(RowKind::UsedToken, &after).await? {
            let usage = ToolUsage::decode(&value)?;
            days.push(ToolDay { plugin: plugin.to_owned(), tool: None, day: since_day, usage });
        }
        loop {
            let page = self.rows.rows(RowKind::UsedToken, Some(&after), PAGE_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok((days, false)) };
            after = last.clone();
            for (row, value) in page {
                let Some((of, day, tool)) = read_tool_key(&row).filter(|(of, ..)| *of == plugin) else {
                    return Ok((days, false));
                };
                if days.len() >= count_max {
                    return Ok((days, true));
                }
                let tool = (!tool.is_empty()).then(|| tool.to_owned());
                days.push(ToolDay { plugin: of.to_owned(), tool, day, usage: ToolUsage::decode(&value)? });
            }
        }
    }

    /// Looks at the next rows after `place` and removes those that are older than what is kept. Returns where to go on;
    /// `None`: all were looked at, and the next sweep begins again.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub async fn sweep(&self, today: u32, after: Option<&[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let page = self.rows.rows(RowKind::UsedToken, Some(after.unwrap_or(&[USAGE])), PAGE_ROWS).await?;
        let is_over = |row: &[u8]| day_of(row).is_some_and(|day| day.saturating_add(USAGE_DAYS_MAX) <= today);
        let over: Vec<RowState> =
            page.iter().filter(|(row, _)| is_over(row)).map(|(row, _)| (row.clone(), None)).collect();
        if !over.is_empty() {
            self.rows.change_rows(RowKind::UsedToken, Vec::new(), over, None).await?;
        }
        let is_usage = |row: &[u8]| matches!(row.first(), Some(&(USAGE | TOOL_USAGE)));
        Ok(page.into_iter().next_back().filter(|(row, _)| is_usage(row)).map(|(row, _)| row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::replay_guard::{ReplayGuard, SingleUseToken};
    use crate::{RowStore as _, TaskStore as _};
    use bulkhead_domain::requestor::{Requestor, RequestorId};

    const ACME: TenantId = TenantId([1; 16]);
    const GLOBEX: TenantId = TenantId([0xff; 16]);

    fn store() -> (Arc<MemoryStore>, UsageDays) {
        let store = Arc::new(MemoryStore::new());
        (Arc::clone(&store), UsageDays::new(store))
    }

    fn usage(calls: u64, stored_bytes: u64) -> DayUsage {
        DayUsage { calls, cpu_us: 10 * calls, bytes_in: 20 * calls, bytes_out: 30 * calls, stored_bytes }
    }

    #[tokio::test]
    async fn usage_of_a_day_adds_up_and_is_listed_by_tenant_and_day() {
        let (_, days) = store();
        for (tenant, day, more) in
            [(GLOBEX, 300, usage(1, 5)), (ACME, 301, usage(2, 9)), (ACME, 301, usage(3, 4)), (ACME, 256, usage(1, 1))]
        {
            days.add(tenant, day, more).await.unwrap();
        }
        let acme = TenantDay { tenant: ACME, day: 301, usage: usage(5, 9) };
        let old = TenantDay { tenant: ACME, day: 256, usage: usage(1, 1) };
        let globex = TenantDay { tenant: GLOBEX, day: 300, usage: usage(1, 5) };
        assert_eq!(days.list(None, 0, 9).await.unwrap(), (vec![old, acme, globex], false));
        assert_eq!(days.list(Some(ACME), 257, 9).await.unwrap(), (vec![acme], false));
        assert_eq!(days.list(None, 0, 2).await.unwrap(), (vec![old, acme], true));
        assert_eq!(days.list(Some(TenantId([2; 16])), 0, 9).await.unwrap(), (vec![], false));
    }

    #[tokio::test]
    async fn days_that_are_too_old_are_swept_in_pages() {
        let (store, days) = store();
        for tenant in 0..100u8 {
            for day in [1, 10, 11, 100] {
                days.add(TenantId([tenant; 16]), day, usage(1, 1)).await.unwrap();
            }
        }
        let mut after = None;
        let mut looks = 0;
        loop {
            after = days.sweep(100, after.as_deref()).await.unwrap();
            looks += 1;
            if after.is_none() {
                break;
            }
        }
        assert!(looks > 1, "more than one page");
        let (left, _) = days.list(None, 0, 1_000).await.unwrap();
        assert_eq!(left.len(), 200);
        assert!(left.iter().all(|left| left.day == 11 || left.day == 100));
        assert_eq!(store.rows(RowKind::UsedToken, None, 1_000).await.unwrap().len(), 200);
    }

    #[tokio::test]
    async fn usage_goes_with_its_tenant_and_leaves_used_tokens_alone() {
        let (store, days) = store();
        let token =
            SingleUseToken { requestor: Requestor { tenant: ACME, id: RequestorId([7; 16]) }, id: [9; 16], until: 50 };
        let guard = ReplayGuard::new(Arc::clone(&store) as Arc<dyn Store>);
        assert!(guard.use_once(&token).await.unwrap());
        days.add(ACME, 1, usage(1, 1)).await.unwrap();
        let (row, _) = store.rows(RowKind::UsedToken, Some(&[USAGE]), 9).await.unwrap().remove(0);
        assert_eq!(RowKind::UsedToken.tenant_of(&row), Some(ACME));
        let of_tool = tool_key("a-plugin-with-a-long-name", 1, Some("tool"));
        assert_eq!(RowKind::UsedToken.tenant_of(&of_tool), None);
        assert_eq!(guard.sweep(40, 9).await.unwrap(), 0);
        assert_eq!(days.sweep(500, None).await.unwrap().map(|row| row[0]), Some(USAGE));
        assert_eq!(days.list(None, 0, 9).await.unwrap().0, []);
        assert!(!guard.use_once(&token).await.unwrap(), "the used token is still there");
        assert_eq!(guard.sweep(60, 9).await.unwrap(), 1);
        store.block_tenant(ACME).await.unwrap();
        assert!(matches!(days.add(ACME, 2, usage(1, 1)).await, Err(Error::ReadOnly(_))));
    }

    #[tokio::test]
    async fn usage_of_tools_adds_up_is_listed_by_day_and_swept() {
        let (_, days) = store();
        let day = |plugin: &str, tool: Option<&str>, day, calls, errors| ToolDay {
            plugin: plugin.to_owned(),
            tool: tool.map(str::to_owned),
            day,
            usage: ToolUsage { calls, errors },
        };
        days.add(ACME, 300, usage(1, 1)).await.unwrap();
        let added = [
            day("csv", Some("query"), 256, 1, 0),
            day("csv", Some("query"), 300, 2, 1),
            day("csv", Some("query"), 300, 3, 1),
            day("csv", None, 300, 4, 0),
            day("csv", None, 299, 9, 9),
            day("csv2", Some("query"), 300, 7, 7),
        ];
        for one in &added {
            days.add_tool(one).await.unwrap();
        }
        let query = day("csv", Some("query"), 300, 5, 2);
        let expected = vec![added[3].clone(), query.clone()];
        assert_eq!(days.list_tools("csv", 300, 9).await.unwrap(), (expected.clone(), false));
        assert_eq!(days.list_tools("csv", 300, 1).await.unwrap(), (expected[..1].to_vec(), true));
        assert_eq!(days.list_tools("csv", 0, 9).await.unwrap().0.len(), 4);
        assert_eq!(days.list_tools("cs", 0, 9).await.unwrap(), (vec![], false));
        // Tenants have none of it.
        assert_eq!(days.list(None, 0, 9).await.unwrap().0.len(), 1);
        assert_eq!(days.sweep(299 + USAGE_DAYS_MAX, None).await.unwrap().map(|row| row[0]), Some(TOOL_USAGE));
        assert_eq!(days.list_tools("csv", 0, 9).await.unwrap(), (expected, false));
    }

    #[test]
    fn damaged_row_of_usage_is_corrupt() {
        let bytes = usage(3, 4).encode();
        assert_eq!(DayUsage::decode(&bytes).unwrap(), usage(3, 4));
        for damaged in [
            &[][..],
            &bytes[..40],
            &[&bytes[..], &[0]].concat(),
            &[&[2], &bytes[1..]].concat(),
            &[&bytes[..], &[0; 8]].concat(),
        ] {
            assert!(matches!(DayUsage::decode(damaged), Err(Error::Corrupt(_))));
        }
    }
}
