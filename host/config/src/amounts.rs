//! Numbers with a unit as people read them: one form for bytes and one for durations, for pages and commands alike.
//!
//! Must not write anything that a program reads: JSON, CSV and files have the plain number. Invariant: a number whose
//! name says its unit (`memory_bytes`, `ttl_ms_max`) has that unit wherever it is shown.

/// What the number of a name is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Milliseconds,
}

/// Moments, which are shown as such.
const MOMENTS: [&str; 2] = ["now_ms", "at_ms"];

fn unit_of(name: &str) -> Option<Unit> {
    let last = name.rsplit(['.', ' ']).next().unwrap_or(name);
    let mut parts = last.split('_').map(str::to_ascii_lowercase);
    let unit = parts.find_map(|part| match part.as_str() {
        "bytes" => Some(Unit::Bytes),
        "ms" => Some(Unit::Milliseconds),
        _ => None,
    });
    unit.filter(|_| !MOMENTS.contains(&last))
}

/// Whether a name says a unit.
pub fn has_unit(name: &str) -> bool {
    unit_of(name).is_some()
}

/// Whether a number of this name is one of bytes.
pub fn is_bytes(name: &str) -> bool {
    unit_of(name) == Some(Unit::Bytes)
}

/// A number as its name says it: in its unit, or with groups of three digits.
pub fn amount(name: &str, number: u64) -> String {
    match unit_of(name) {
        Some(Unit::Bytes) => bytes(number),
        Some(Unit::Milliseconds) => duration(number),
        None => count(number),
    }
}

/// The same of a number that must not be rounded, such as a configured one.
pub fn exact_amount(name: &str, number: u64) -> String {
    match unit_of(name) {
        Some(Unit::Bytes) if !is_exact_bytes(number) => format!("{} B", count(number)),
        Some(Unit::Milliseconds) if !is_exact_duration(number) => format!("{} ms", count(number)),
        _ => amount(name, number),
    }
}

/// What one side says of a grant, if that is numbers: a limit of calls, or what a key-value store may hold.
pub fn granted_amount(grant: &str, value: &str) -> Option<String> {
    let numbers: Vec<u64> = value.split('/').map(str::parse).collect::<Result<_, _>>().ok()?;
    match numbers[..] {
        [number] if has_unit(grant) => Some(exact_amount(grant, number)),
        [keys, bytes_max, value_bytes_max] if grant.starts_with("kv ") => {
            let [in_all, of_value] = [bytes_max, value_bytes_max].map(|number| exact_amount("bytes", number));
            Some(format!("{} keys, {in_all}, {of_value} a value", count(keys)))
        }
        _ => None,
    }
}

/// Bytes in a unit for people.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1_024.0 {
            break;
        }
        (value, unit) = (value / 1_024.0, next);
    }
    if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") }
}

/// How long something took or takes, in the two largest units that tell something.
pub fn duration(ms: u64) -> String {
    let of = |number: u64, unit: &str, rest: u64, smaller: &str| match rest {
        0 => format!("{number} {unit}"),
        rest => format!("{number} {unit} {rest} {smaller}"),
    };
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms} ms"),
        1..10 if !ms.is_multiple_of(1_000) => format!("{}.{} s", seconds, ms % 1_000 / 100),
        1..60 => format!("{seconds} s"),
        60..3_600 => of(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => of(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => of(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// A number with groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Whether nothing is lost by one digit behind the point.
fn is_exact_bytes(number: u64) -> bool {
    let unit = [40, 30, 20, 10].into_iter().map(|bits| 1_u64 << bits).find(|unit| number >= *unit).unwrap_or(1);
    (u128::from(number % unit) * 10).is_multiple_of(u128::from(unit))
}

/// Whether nothing is lost by the two largest units.
fn is_exact_duration(ms: u64) -> bool {
    match ms {
        0..1_000 => true,
        1_000..10_000 => ms.is_multiple_of(100),
        10_000..3_600_000 => ms.is_multiple_of(1_000),
        3_600_000..86_400_000 => ms.is_multiple_of(60_000),
        _ => ms.is_multiple_of(3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_form() {
        let minutes = 60_000;
        for (ms, expected) in [
            (0, "0 ms"),
            (640, "640 ms"),
            (4_250, "4.2 s"),
            (12_900, "12 s"),
            (60_000, "1 min"),
            (3 * minutes + 20_000, "3 min 20 s"),
            (600_000, "10 min"),
            (125 * minutes, "2 h 5 min"),
            (76 * 60 * minutes, "3 d 4 h"),
        ] {
            assert_eq!(duration(ms), expected);
        }
    }

    #[test]
    fn bytes_and_counts_have_one_form() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((bytes(1_023), bytes(1_536), bytes(5 << 30)), ("1023 B".into(), "1.5 KiB".into(), "5.0 GiB".into()));
    }

    #[test]
    fn name_says_the_unit_and_a_configured_number_is_not_rounded() {
        for (name, number, shown, exact) in [
            ("call.memory_bytes", 67_108_864, "64.0 MiB", "64.0 MiB"),
            ("limits.ttl_ms_max", 600_000, "10 min", "10 min"),
            ("CPU_MS", 90_500, "1 min 30 s", "90,500 ms"),
            ("request_bytes_per_second", 100_000_000, "95.4 MiB", "100,000,000 B"),
            ("stored_bytes", 1_536, "1.5 KiB", "1.5 KiB"),
            ("ttl_ms", 4_250, "4.2 s", "4,250 ms"),
            ("tasks_total", 100_000, "100,000", "100,000"),
            ("at_ms", 1_799_981_999_991, "1,799,981,999,991", "1,799,981,999,991"),
        ] {
            assert_eq!((amount(name, number).as_str(), exact_amount(name, number).as_str()), (shown, exact), "{name}");
        }
    }

    #[test]
    fn grants_have_their_numbers_in_words() {
        for (grant, value, expected) in [
            ("call.wall_ms", "600000", Some("10 min")),
            ("kv (keys/bytes/value)", "1000/1048576/65536", Some("1,000 keys, 1.0 MiB, 64.0 KiB a value")),
            ("kv (keys/bytes/value)", "yes", None),
            ("call.wall_ms", "any", None),
            ("call.events_per_second", "50", None),
            ("http https://a", "600000", None),
        ] {
            assert_eq!(granted_amount(grant, value).as_deref(), expected, "{grant} {value}");
        }
    }
}
