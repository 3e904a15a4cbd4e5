//! Standard output: tables on a terminal, JSON elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::Value;

use crate::cli::failure::Failure;
pub(crate) use crate::escape::clean;

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
}

impl Form {
    /// The form that was asked for; else a table on a terminal and JSON in a pipe.
    pub(crate) fn or_default(asked: Option<Self>) -> Self {
        asked.unwrap_or(if io::stdout().is_terminal() { Self::Table } else { Self::Json })
    }
}

/// A path as the forms of CI systems have it: relative to where the command runs, without `./`.
pub(crate) fn plain_path(file: &str) -> &str {
    file.strip_prefix("./").unwrap_or(file)
}

/// Columns of text.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table that has only its head, one line and cut as well: where a row is a field, the first may be a name.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| one_line(cell)).collect()] }
    }

    /// Adds a row, each cell in [`one_line`].
    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row.iter().map(|cell| one_line(cell)).collect());
    }

    /// The rows with aligned columns, one line each.
    pub(crate) fn render(&self) -> String {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..n_columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A text from outside as part of one line: [`clean`], and cut if it is long.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for (n, character) in text.chars().enumerate() {
        if n >= MAX_CELL_CHARS {
            line.push('…');
            break;
        }
        line.push(character);
    }
    clean(&line)
}

/// The values of a list; none of anything else.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Writes text to standard output. A reader that has gone away, such as `head`, is no failure.
///
/// # Errors
///
/// If it cannot be written for another reason, such as a full disk.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a JSON value with a line feed.
///
/// # Errors
///
/// As [`print()`].
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Prints an answer in the form that was asked for, see [`Form::or_default`].
///
/// # Errors
///
/// As [`print()`].
pub(crate) fn print_in(
    asked: Option<Form>,
    answer: &Value,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match Form::or_default(asked) {
        Form::Json => print_json(answer),
        Form::Table => print(&table()),
    }
}

/// A scalar as a cell: texts without quotes, nothing for null.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// The most characters of a text from outside in a line: a name of 4 KiB would make every row as wide. JSON has the whole text.
const MAX_CELL_CHARS: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_escaped() {
        assert_eq!(Table::new(&["ID", "a\nb"]).render(), "ID  a\\nb\n");
        let cut = Table::new(&["ID", &"x".repeat(10_000)]).render();
        assert_eq!(cut, format!("ID  {}…\n", "x".repeat(MAX_CELL_CHARS)));
        let mut table = Table::new(&["ID", "STATUS"]);
        table.push(vec!["a-long-id".to_owned(), "SYNCED".to_owned()]);
        table.push(vec!["b\u{1b}[31m".to_owned(), String::new()]);
        assert_eq!(table.render(), "ID           STATUS\na-long-id    SYNCED\nb\\u{1b}[31m\n");
    }
}
