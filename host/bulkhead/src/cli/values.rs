//! Values as people write them on the command line: shares, ratios, times, switches.

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

#[cfg(test)]
mod tests {
    use super::*;

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
