//! Tables that fit the terminal they are read on.

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use console::measure_text_width;

use crate::terminal::{self, Tone};
use config::printable;

/// Padding that comfy-table puts around a column.
const PADDING: usize = 2;
/// The last column is not made narrower than this.
const MIN_LAST: usize = 16;

/// One line a row below a line of heads; no newline at the end.
///
/// Where the terminal has no room for that, the last column is cut short, since it holds what is
/// longest; if there is still no room, each row is written as lines of names and values instead.
/// What is not read on a terminal is as wide as it is.
pub(crate) fn table(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    // Names and descriptions are other people's text, and a terminal obeys control characters.
    let rows = rows.into_iter().map(|row| {
        let cells = row.iter().map(|cell| printable(cell));
        cells.collect::<Vec<_>>()
    });
    fitted(heads, rows.collect(), terminal::width())
}

fn fitted(heads: &[&str], mut rows: Vec<Vec<String>>, width: Option<usize>) -> String {
    let Some(width) = width else {
        return lined(heads, rows);
    };
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(at, head)| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            let widest = cells.map(|cell| measure_text_width(cell)).max();
            widest.unwrap_or(0).max(measure_text_width(head)) + PADDING
        })
        .collect();
    let Some((last, others)) = widths.split_last() else {
        return String::new();
    };
    let others: usize = others.iter().sum();
    if others + last <= width {
        return lined(heads, rows);
    }
    let room = width.saturating_sub(others + PADDING);
    if room < MIN_LAST {
        return blocks(heads, &rows, width);
    }
    for row in &mut rows {
        if let Some(cell) = row.get_mut(heads.len() - 1) {
            *cell = console::truncate_str(cell, room, "…").into_owned();
        }
    }
    lined(heads, rows)
}

fn lined(heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heads.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    let text = table.trim_fmt();
    match text.split_once('\n') {
        Some((first, rest)) => format!("{}\n{rest}", terminal::painted(first, Tone::Head)),
        None => terminal::painted(&text, Tone::Head),
    }
}

/// Each row as lines of names and values, an empty line between two rows.
fn blocks(heads: &[&str], rows: &[Vec<String>], width: usize) -> String {
    let names = heads.iter().map(|head| measure_text_width(head)).max();
    let names = names.unwrap_or(0);
    let room = width.saturating_sub(names + PADDING).max(MIN_LAST);
    let block = |row: &Vec<String>| {
        let lines = heads.iter().zip(row).map(|(head, cell)| {
            let name = terminal::painted(&format!("{head:<names$}"), Tone::Head);
            format!("{name}  {}", console::truncate_str(cell, room, "…"))
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(block).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: Option<usize>) -> String {
        let rows = [
            ["count-stock", "python", "Counts what is in the warehouse."],
            ["会议", "native", "x"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        fitted(&["NAME", "KIND", "DESCRIPTION"], rows, width)
    }

    #[test]
    fn no_line_is_longer_than_the_terminal_is_wide() {
        for width in [30, 40, 41, 50, 60, 80] {
            let text = shown(Some(width));
            let widest = text.lines().map(measure_text_width).max();
            assert!(widest <= Some(width), "{width}: {text}");
        }
        assert!(shown(Some(60)).contains("the warehouse."));
        assert!(shown(Some(45)).contains("Counts what is in"));
        assert!(shown(Some(45)).contains('…'));
        assert_eq!(shown(None), shown(Some(200)));
    }

    #[test]
    fn where_there_is_no_room_for_columns_names_stand_beside_values() {
        let text = shown(Some(34));
        let first: Vec<&str> = text.lines().take(5).collect();
        let expected = [
            "NAME         count-stock",
            "KIND         python",
            "DESCRIPTION  Counts what is in th…",
            "",
            "NAME         会议",
        ];
        assert_eq!(first, expected, "{text}");
    }

    #[test]
    fn no_rows_still_have_heads_and_no_columns_are_nothing() {
        assert_eq!(fitted(&["A", "B"], Vec::new(), Some(80)).trim(), "A  B");
        assert_eq!(fitted(&[], Vec::new(), Some(80)), "");
    }
}
