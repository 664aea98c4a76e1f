//! Rows in each of the formats that the command line prints.

use std::io::{self, Write};

use serde_json::Value;

use crate::cli::RowsFormat;
use crate::config::printable;
use crate::table::table;

/// A table shows at most this many characters of a value.
const MAX_CELL_CHARACTERS: usize = 80;

/// One row: a value for each column.
pub(super) type Row = Vec<Value>;

/// Rows of the same columns.
pub(super) struct Sheet {
    /// The names of all columns.
    pub(super) columns: &'static [&'static str],
    /// The columns that a table has room for, and its heads.
    pub(super) shown: &'static [(&'static str, &'static str)],
    pub(super) rows: Vec<Row>,
}

impl Sheet {
    /// As text, no newline at the end.
    pub(super) fn print(&self, format: RowsFormat) -> Result<String, csv::Error> {
        Ok(match format {
            RowsFormat::Table => self.table(),
            RowsFormat::Json => {
                let objects = self.rows.iter().map(|row| object(self.columns, row));
                let objects = Value::Array(objects.collect());
                serde_json::to_string_pretty(&objects).expect("rows are plain data")
            }
            RowsFormat::Csv => {
                let mut text = Vec::new();
                let mut sheet = CsvSheet::new(&mut text, self.columns)?;
                self.rows.iter().try_for_each(|row| sheet.write(row))?;
                sheet.finish()?;
                String::from_utf8_lossy(&text).trim_end().to_owned()
            }
        })
    }

    fn table(&self) -> String {
        let heads: Vec<&str> = self.shown.iter().map(|(_, head)| *head).collect();
        let rows = self.rows.iter().map(|row| {
            let cells = self.shown.iter().map(|(column, _)| {
                let at = self.columns.iter().position(|name| name == column);
                at.map_or_else(String::new, |at| cell(&row[at]))
            });
            cells.collect()
        });
        table(&heads, rows.collect())
    }
}

/// A row as an object.
pub(super) fn object(columns: &[&str], row: &Row) -> Value {
    let members = columns.iter().zip(row);
    members
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

/// A row as lines of names and values; what is empty is left out. No newline at the end.
pub(super) fn card(columns: &[&str], row: &Row) -> String {
    let width = columns.iter().map(|name| name.len()).max().unwrap_or(0);
    let members = columns.iter().zip(row);
    let lines = members.filter(|(_, value)| !value.is_null());
    let lines = lines.map(|(name, value)| format!("{name:<width$}  {}", printable(&text(value))));
    lines.collect::<Vec<_>>().join("\n")
}

/// Rows as they come.
pub(super) struct CsvSheet<W: Write>(csv::Writer<W>);

impl<W: Write> CsvSheet<W> {
    pub(super) fn new(output: W, columns: &[&str]) -> Result<Self, csv::Error> {
        let mut writer = csv::Writer::from_writer(output);
        writer.write_record(columns)?;
        Ok(Self(writer))
    }

    pub(super) fn write(&mut self, row: &Row) -> Result<(), csv::Error> {
        self.0.write_record(row.iter().map(harmless))
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Texts of strangers: a spreadsheet takes what begins like this for a formula, and carries it out.
/// An apostrophe before it says that it is a text.
fn harmless(value: &Value) -> String {
    let plain = text(value);
    match value {
        Value::String(_) if plain.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) => {
            format!("'{plain}")
        }
        _ => plain,
    }
}

/// Texts of strangers: a terminal obeys control characters.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return "-".to_owned(),
        value => printable(&text(value)),
    };
    match text.char_indices().nth(MAX_CELL_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sheet() -> Sheet {
        Sheet {
            columns: &["name", "more"],
            shown: &[("name", "NAME")],
            rows: vec![
                vec![json!("a,\"b\"\n\u{1b}[2J"), json!({"x": 1})],
                vec![json!("é".repeat(200)), Value::Null],
            ],
        }
    }

    #[test]
    fn each_format_keeps_rows_apart_whatever_is_in_them() {
        let table = sheet().print(RowsFormat::Table).unwrap();
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(
            !table.contains('\u{1b}') && table.contains('…'),
            "{table:?}"
        );
        let json: Value = serde_json::from_str(&sheet().print(RowsFormat::Json).unwrap()).unwrap();
        assert_eq!(json[0]["more"]["x"], 1);
        assert_eq!(json[1]["more"], Value::Null);
        let csv = sheet().print(RowsFormat::Csv).unwrap();
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(&records[0][0], "a,\"b\"\n\u{1b}[2J");
        assert_eq!(&records[0][1], "{\"x\":1}");
        assert_eq!(&records[1][1], "");
    }

    #[test]
    fn no_text_is_a_formula() {
        let texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a=1", "'"];
        let sheet = |value| Sheet {
            columns: &["name"],
            shown: &[],
            rows: vec![vec![value]],
        };
        for text in texts {
            let csv = sheet(json!(text)).print(RowsFormat::Csv).unwrap();
            let mut reader = csv::Reader::from_reader(csv.as_bytes());
            let record = reader.records().next().unwrap().unwrap();
            let expected = match text.starts_with(['a', '\'']) {
                true => text.to_owned(),
                false => format!("'{text}"),
            };
            assert_eq!(record[0], expected);
        }
        let number = sheet(json!(-1)).print(RowsFormat::Csv).unwrap();
        assert_eq!(number, "name\n-1");
    }

    #[test]
    fn no_rows_still_have_heads() {
        let empty = Sheet {
            rows: Vec::new(),
            ..sheet()
        };
        assert_eq!(empty.print(RowsFormat::Csv).unwrap(), "name,more");
        assert_eq!(empty.print(RowsFormat::Json).unwrap(), "[]");
    }
}
