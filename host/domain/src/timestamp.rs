//! Times as people and protocols write them: ISO 8601, UTC, milliseconds.

use super::UnixMs;

const DAY_MS: u64 = 86_400_000;

/// `2026-11-21T02:03:39.123Z`.
pub fn iso8601(at: UnixMs) -> String {
    let (year, month, day) = date(at / DAY_MS);
    let ms = at % DAY_MS;
    let hour = ms / 3_600_000;
    let minute = ms / 60_000 % 60;
    let second = ms / 1000 % 60;
    if year > 9999 {
        return format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000);
    }
    // Every task that is shown has two times, which took the machinery of `format!` longer than reading the task.
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let [y1, y2, y3, y4, _, mo1, mo2, _, d1, d2, _, h1, h2, _, mi1, mi2, _, s1, s2, _, ms1, ms2, ms3, _] = &mut text;
    write_digits([y1, y2, y3, y4], year);
    write_digits([mo1, mo2], month);
    write_digits([d1, d2], day);
    write_digits([h1, h2], hour);
    write_digits([mi1, mi2], minute);
    write_digits([s1, s2], second);
    write_digits([ms1, ms2, ms3], ms % 1000);
    String::from_utf8_lossy(&text).into_owned()
}

/// The last digits of a number, into their places.
fn write_digits<const N: usize>(digits: [&mut u8; N], mut value: u64) {
    for digit in digits.into_iter().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// The Gregorian date of a day counted from 1970-01-01.
///
/// Counts from 1 March of year 0, so that the leap day is the last day of a year and of each longer cycle.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let centuries = (day_of_era / 36_524).min(3);
    let day_of_century = day_of_era - centuries * 36_524;
    let fours = day_of_century / 1461;
    let day_of_four = day_of_century % 1461;
    let years = (day_of_four / 365).min(3);
    let mut day = day_of_four - years * 365;
    let mut year = era * 400 + centuries * 100 + fours * 4 + years;
    let mut month = 3;
    for length in [31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    if month > 12 {
        month -= 12;
        year += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_timestamps_are_formatted_as_iso8601() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso8601(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso8601(951_868_799_999), "2000-02-29T23:59:59.999Z");
        assert_eq!(iso8601(951_868_800_000), "2000-03-01T00:00:00.000Z");
        assert_eq!(iso8601(1_709_164_800_000), "2024-02-29T00:00:00.000Z");
        assert_eq!(iso8601(1_795_226_619_007), "2026-11-21T02:03:39.007Z");
        assert_eq!(iso8601(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
        assert_eq!(iso8601(253_402_300_800_000), "10000-01-01T00:00:00.000Z");
    }

    #[test]
    fn timestamp_dates_are_consecutive_over_four_centuries() {
        let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let mut year = 1970;
        let mut month = 1;
        let mut day = 1;
        for days in 0..146_097 {
            assert_eq!(date(days), (year, month, day));
            let length = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
