//! Reads a table once, row by row, and keeps one [`Column`] of statistics each.

use std::io::Read;

use bulkhead_plugin::Error;
use schemars::JsonSchema;
use serde::Serialize;

use crate::column::{Column, Summary};

/// Rows between two reports.
const ROWS_PER_REPORT: u64 = 1000;

/// A table with more columns is not one; each column costs memory.
const COLUMNS_MAX: usize = 4096;

/// Distinct values that are remembered, in all columns together: 16 bytes each, so at most 16 MiB.
const DISTINCT_MAX: usize = 1 << 20;

/// What is in a table.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Profile {
    /// Rows below the header.
    rows: u64,
    /// Rows with more or fewer fields than the header.
    ragged_rows: u64,
    /// False if a message ended the reading early.
    complete: bool,
    /// The columns, in the order of the file.
    columns: Vec<Summary>,
}

/// Reads the table to its end, or until `report` (rows so far, bytes so far) says no.
pub(crate) fn read(
    source: impl Read,
    delimiter: u8,
    mut report: impl FnMut(u64, u64) -> Result<bool, Error>,
) -> Result<Profile, Error> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(source);
    let header = reader.byte_headers()?.clone();
    if header.is_empty() {
        return Err(Error::new("the file is empty: there is no header row"));
    }
    if header.len() > COLUMNS_MAX {
        return Err(Error::new(format!("{} columns; at most {COLUMNS_MAX} can be profiled", header.len())));
    }
    let distinct_max = DISTINCT_MAX / header.len();
    let mut columns: Vec<Column> =
        header.iter().map(|name| Column::new(String::from_utf8_lossy(name).trim(), distinct_max)).collect();

    let mut rows = 0;
    let mut ragged_rows = 0;
    let mut complete = true;
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record)? {
        rows += 1;
        ragged_rows += u64::from(record.len() != columns.len());
        for (index, column) in columns.iter_mut().enumerate() {
            column.add(record.get(index).unwrap_or_default());
        }
        if rows % ROWS_PER_REPORT == 0 && !report(rows, reader.position().byte())? {
            complete = false;
            break;
        }
    }
    report(rows, reader.position().byte())?;
    Ok(Profile { rows, ragged_rows, complete, columns: columns.into_iter().map(Column::finish).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Type;

    fn profile(text: &str) -> Profile {
        read(text.as_bytes(), b',', |_, _| Ok(true)).unwrap()
    }

    #[test]
    fn airports_csv_profile_is_exact() {
        let profile = profile(include_str!("../testdata/airports.csv"));
        let of = |name: &str| profile.columns.iter().find(|column| column.name == name).unwrap();
        assert_eq!((profile.rows, profile.ragged_rows, profile.complete), (3376, 0, true));
        assert_eq!((of("iata").kind, of("iata").distinct, of("iata").nulls), (Type::Text, 3376, 0));
        assert_eq!((of("iata").first.as_deref(), of("iata").last.as_deref()), (Some("00M"), Some("ZZV")));
        let latitude = of("latitude");
        assert_eq!(latitude.kind, Type::Number);
        assert!((latitude.min.unwrap() - 7.367222).abs() < 1e-9 && (latitude.max.unwrap() - 71.2854475).abs() < 1e-9);
        assert!((latitude.mean.unwrap() - 40.036524).abs() < 1e-4, "{latitude:?}");
        assert_eq!(of("country").distinct, 5);
    }

    #[test]
    fn quoted_csv_fields_hold_delimiters_and_line_breaks() {
        let profile = profile("a,b\n\"x,\"\"y\"\"\nz\",1\n");
        assert_eq!((profile.rows, profile.ragged_rows), (1, 0));
        assert_eq!(profile.columns[0].first.as_deref(), Some("x,\"y\"\nz"));
    }

    #[test]
    fn short_csv_row_has_nulls_and_is_counted() {
        let profile = profile("a,b\n1\n2,3\n");
        assert_eq!((profile.rows, profile.ragged_rows, profile.columns[1].nulls), (2, 1, 1));
    }

    #[test]
    fn progress_report_can_stop_csv_reading() {
        let text = format!("a\n{}", "1\n".repeat(5000));
        let profile = read(text.as_bytes(), b',', |rows, _| Ok(rows < 2000)).unwrap();
        assert_eq!((profile.rows, profile.complete), (2000, false));
    }

    #[test]
    fn empty_csv_file_is_refused() {
        assert!(read("".as_bytes(), b',', |_, _| Ok(true)).unwrap_err().to_string().contains("empty"));
    }
}
