//! Rows in each of the formats that the command line prints.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::{Value, value::RawValue};

use crate::request::RowsFormat;
use crate::table::table;
use crate::terminal;
use config::printable;
use server::json_text;

/// A table shows at most this many characters of a value.
const MAX_CELL_CHARACTERS: usize = 80;

/// One row: a value for each column.
pub(super) type Row = Vec<Cell>;

/// Value of a column in a row, or of a member of an object.
#[derive(Debug, Clone)]
pub enum Cell {
    /// A value of ours.
    Plain(Value),
    /// JSON as it was kept, in one line: numbers have all of their digits.
    Json(Box<RawValue>),
}

impl<T: Into<Value>> From<T> for Cell {
    fn from(value: T) -> Self {
        Self::Plain(value.into())
    }
}

impl JsonSchema for Cell {
    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    /// Any JSON.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }

    fn inline_schema() -> bool {
        true
    }
}

/// A row of values of ours, and of cells.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(crate::inspect::sheet::Cell::from($value)),*] };
}
pub(super) use row;

impl Cell {
    /// Cell of a text of JSON; a text that is not JSON is shown as text, and `null` as nothing.
    #[must_use]
    pub fn of_json(json: &str) -> Self {
        match redaction::readable(json).map(RawValue::from_string) {
            Ok(Ok(json)) => Self::Json(json),
            _ if json.is_empty() => Self::Plain(Value::Null),
            _ => Self::Plain(Value::from(json)),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Plain(Value::Null))
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(value) => value.serialize(serializer),
            Self::Json(json) => json.serialize(serializer),
        }
    }
}

/// A row with the names of its columns.
pub(super) type Object<'a> = BTreeMap<&'a str, Cell>;

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
                pretty(&objects.collect::<Vec<_>>())
            }
            RowsFormat::Csv => {
                let mut text = Vec::new();
                let mut sheet = CsvSheet::new(&mut text, self.columns)?;
                sheet.is_read = terminal::is_read();
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
pub(super) fn object<'a>(columns: &[&'a str], row: &Row) -> Object<'a> {
    columns.iter().copied().zip(row.iter().cloned()).collect()
}

/// JSON in several lines.
pub(super) fn pretty(value: &impl Serialize) -> String {
    json_text(&serde_json::to_string_pretty(value).expect("rows are plain data"))
}

/// JSON in one line.
pub(super) fn line(value: &impl Serialize) -> String {
    json_text(&serde_json::to_string(value).expect("rows are plain data"))
}

/// A row as lines of names and values; empty values are left out. No newline at the end.
pub(super) fn card(columns: &[&str], row: &Row) -> String {
    let width = columns.iter().map(|name| name.len()).max().unwrap_or(0);
    let members = columns.iter().zip(row);
    let lines = members.filter(|(_, value)| !value.is_null());
    let lines = lines.map(|(name, value)| format!("{name:<width$}  {}", printable(&text(value))));
    lines.collect::<Vec<_>>().join("\n")
}

/// Rows as they come.
pub(super) struct CsvSheet<W: Write> {
    writer: csv::Writer<W>,
    /// True if the output is a terminal, which obeys control characters.
    pub(super) is_read: bool,
}

impl<W: Write> CsvSheet<W> {
    pub(super) fn new(output: W, columns: &[&str]) -> Result<Self, csv::Error> {
        let mut writer = csv::Writer::from_writer(output);
        writer.write_record(columns)?;
        let is_read = false;
        Ok(Self { writer, is_read })
    }

    pub(super) fn write(&mut self, row: &Row) -> Result<(), csv::Error> {
        let is_read = self.is_read;
        self.writer
            .write_record(row.iter().map(|cell| match is_read {
                true => printable(&harmless(cell)),
                false => harmless(cell),
            }))
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Text of a stranger for a spreadsheet, which takes a text that begins like this for a formula and
/// carries it out. An apostrophe before it marks it as text.
fn harmless(value: &Cell) -> String {
    let plain = text(value);
    match value {
        Cell::Plain(Value::String(_))
            if plain.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) =>
        {
            format!("'{plain}")
        }
        _ => plain,
    }
}

/// Text of a stranger for a terminal, which obeys control characters. JSON is shown as a whole or
/// not at all: a person who decides by its beginning decides about something else.
fn cell(value: &Cell) -> String {
    let text = match value {
        Cell::Plain(Value::Null) => return "-".to_owned(),
        value => printable(&text(value)),
    };
    if let Cell::Json(json) = value
        && MAX_CELL_CHARACTERS < text.chars().count()
    {
        return format!("({} bytes: see `show`)", json.get().len());
    }
    match text.char_indices().nth(MAX_CELL_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn text(value: &Cell) -> String {
    match value {
        Cell::Plain(Value::Null) => String::new(),
        Cell::Plain(Value::String(text)) => text.clone(),
        Cell::Plain(value) => value.to_string(),
        Cell::Json(json) => json.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A number that no double and no integer of 64 bits is.
    const EXACT: &str = r#"{ "x" : 1, "n": 18446744073709551617.10 }"#;

    fn sheet() -> Sheet {
        Sheet {
            columns: &["name", "more"],
            shown: &[("name", "NAME")],
            rows: vec![
                vec![json!("a,\"b\"\n\u{1b}[2J").into(), Cell::of_json(EXACT)],
                vec![json!("é".repeat(200)).into(), Value::Null.into()],
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
        let exact = r#"{"x":1,"n":18446744073709551617.10}"#;
        assert!(sheet().print(RowsFormat::Json).unwrap().contains(exact));
        assert_eq!(json[1]["more"], Value::Null);
        let csv = sheet().print(RowsFormat::Csv).unwrap();
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(&records[0][0], "a,\"b\"\n\u{1b}[2J");
        assert_eq!(&records[0][1], exact);
        assert_eq!(&records[1][1], "");
    }

    #[test]
    fn csv_keeps_control_characters_in_a_file_and_not_on_a_terminal() {
        let rows = sheet().rows;
        for (is_read, first) in [(false, "a,\"b\"\n\u{1b}[2J"), (true, "a,\"b\" \u{fffd}[2J")] {
            let mut text = Vec::new();
            let mut sheet = CsvSheet::new(&mut text, &["name", "more"]).unwrap();
            sheet.is_read = is_read;
            sheet.write(&rows[0]).unwrap();
            sheet.finish().unwrap();
            let mut reader = csv::Reader::from_reader(&*text);
            assert_eq!(&reader.records().next().unwrap().unwrap()[0], first);
        }
    }

    #[test]
    fn json_in_a_table_is_whole_or_replaced_by_its_size() {
        let long = format!(r#"{{"note":"{}","amount":1}}"#, "x".repeat(100));
        assert_eq!(cell(&Cell::of_json(&long)), "(122 bytes: see `show`)");
        assert_eq!(cell(&Cell::of_json("{ }")), "{}");
        assert_eq!(cell(&Cell::of_json("no JSON")), "no JSON");
        assert_eq!(cell(&Cell::of_json("")), "-");
    }

    #[test]
    fn no_text_is_a_formula() {
        let texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a=1", "'"];
        let sheet = |value| Sheet {
            columns: &["name"],
            shown: &[],
            rows: vec![vec![Cell::from(value)]],
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
