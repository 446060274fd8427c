//! Values as people write them on the command line: shares, ratios, times, moments, switches.

use clap::ValueEnum;

/// Something that is switched on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// A share such as `10%` or `0.5`, in hundredths of a percent.
pub(super) fn share(text: &str) -> Result<u16, String> {
    let hundredths = hundredths(text.strip_suffix('%').unwrap_or(text)).filter(|share| (1..=10_000).contains(share));
    let wrong =
        || "a share is a number of per cent above 0 and up to 100, with at most two digits behind the point".to_owned();
    hundredths.and_then(|share| u16::try_from(share).ok()).ok_or_else(wrong)
}

/// A ratio such as `1.5`, in per cent.
pub(super) fn ratio(text: &str) -> Result<u32, String> {
    hundredths(text)
        .ok_or_else(|| "a ratio is a number such as 1.5, with at most two digits behind the point".to_owned())
}

/// A decimal number with at most two digits behind the point, times a hundred.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 2 {
        return None;
    }
    let fraction: u32 = format!("{fraction:0<2}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(fraction)
}

/// 30s, 15m, 12h, 90d.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a time: write a number and s, m, h or d, like 90d");
    let unit_at = text.len().saturating_sub(1);
    let (number, unit) = text.split_at_checked(unit_at).ok_or_else(wrong)?;
    let unit_ms: u64 = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let ms = number.checked_mul(unit_ms).ok_or_else(wrong)?;
    if ms == 0 { Err("a time is longer than nothing".to_owned()) } else { Ok(ms) }
}

/// A moment: so long ago (`2h`), a date (`2026-11-28`), a date and time (`2026-11-28T10:00`) or a time of today
/// (`10:00`), in UTC.
pub(super) fn moment_ms(text: &str, now: u64) -> Result<u64, String> {
    let wrong = || {
        format!("{text:?} is not a moment: write how long ago (2h), or 2026-11-28, 2026-11-28T10:00 or 10:00, in UTC")
    };
    if let Ok(ago) = duration_ms(text) {
        return Ok(now.saturating_sub(ago));
    }
    let plain = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = match plain.split_once('T') {
        Some((date, time)) => (Some(date), Some(time)),
        None if plain.contains(':') => (None, Some(plain)),
        None => (Some(plain), None),
    };
    let day_ms = match date {
        Some(date) => days_to(date).ok_or_else(wrong)?.checked_mul(DAY_MS).ok_or_else(wrong)?,
        None => now / DAY_MS * DAY_MS,
    };
    Ok(day_ms + time.map_or(Some(0), time_of_day_ms).ok_or_else(wrong)?)
}

const DAY_MS: u64 = 86_400_000;

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<u64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// The days from 1970-01-01 to a date.
fn days_to(date: &str) -> Option<u64> {
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4).filter(|year| *year >= 1970)?;
    let month = digits(parts.next()?, 2).filter(|month| (1..=12).contains(month))?;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month - 1).ok()?;
    let day = digits(parts.next()?, 2).filter(|day| (1..=*months.get(before).unwrap_or(&0)).contains(day))?;
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    parts.next().is_none().then_some(years + months.iter().take(before).sum::<u64>() + day - 1)
}

/// 10:00 or 10:00:00.
fn time_of_day_ms(time: &str) -> Option<u64> {
    let mut parts = time.split(':');
    let mut part = |below: u64| digits(parts.next()?, 2).filter(|number| *number < below);
    let minutes = part(24)? * 60 + part(60)?;
    let seconds = if time.len() > "10:00".len() { part(60)? } else { 0 };
    parts.next().is_none().then_some((minutes * 60 + seconds) * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ago_or_in_utc() {
        // 2026-11-28T18:25:00Z
        let now = 1_795_890_300_000;
        let shown = |text: &str| moment_ms(text, now).map(bulkhead_domain::timestamp::iso8601);
        for (text, expected) in [
            ("2h", "2026-11-28T16:25:00"),
            ("2026-11-28", "2026-11-28T00:00:00"),
            ("2024-02-29T10:00", "2024-02-29T10:00:00"),
            ("2026-11-28T10:00:07Z", "2026-11-28T10:00:07"),
            ("10:00", "2026-11-28T10:00:00"),
        ] {
            assert!(shown(text).is_ok_and(|shown| shown.starts_with(expected)), "{text}: {:?}", shown(text));
        }
        for wrong in ["", "T", "2026-02-29", "2026-13-01", "26-1-1", "2026-11-28-", "24:00", "10:00:", "1:00", "now"] {
            assert!(moment_ms(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_and_ratios_parse_with_two_decimals() {
        for (text, expected) in [("10%", 1_000), ("10", 1_000), ("0.5%", 50), ("0.05", 5), ("100%", 10_000)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for wrong in ["0", "0%", "100.01%", "-1", "+1", "1e2", "0.005", "%", ".", "1.", ""] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!((ratio("1.5"), ratio("0"), ratio("2")), (Ok(150), Ok(0), Ok(200)));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration_ms("90d"), Ok(7_776_000_000));
        assert_eq!(duration_ms("1s"), Ok(1_000));
        for wrong in ["", "d", "5", "5w", "-1d", "0h", "1.5h", "99999999999999999999d", "é"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }
}
