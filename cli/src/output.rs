//! Standard output: tables on a terminal, JSON elsewhere, and what else is asked for.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::failure::Failure;
pub(crate) use xds_units::escape::clean;

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// For people
    Table,
    /// A table with further columns, for lists that have some
    Wide,
    /// For programs
    Json,
    /// What `json` has, as YAML
    Yaml,
    /// Names alone, one a line, as other commands take them
    Name,
}

impl Form {
    /// Returns `true` if people read it, line by line.
    pub(crate) fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// The form that was asked for; else a table on a terminal and JSON in a pipe.
    pub(crate) fn or_default(asked: Option<Self>) -> Self {
        asked.unwrap_or(if io::stdout().is_terminal() { Self::Table } else { Self::Json })
    }
}

/// Whether text may have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    is_coloured: bool,
}

impl Ink {
    /// No colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { is_coloured: false };

    /// Colours if standard output is a terminal that has them, unless `NO_COLOR` is set.
    pub(crate) fn of_stdout() -> Self {
        Self { is_coloured: AutoStream::choice(&io::stdout()) != ColorChoice::Never }
    }

    /// A line of a difference: green if it comes, red if it goes, blue if it says where, bold if it is a heading.
    pub(crate) fn paint(self, line: &str, colour: Colour) -> String {
        let style = match colour {
            Colour::Added => AnsiColor::Green.on_default(),
            Colour::Removed => AnsiColor::Red.on_default(),
            Colour::Place => AnsiColor::Cyan.on_default(),
            Colour::Heading => Style::new().bold(),
            Colour::None => Style::new(),
        };
        if self.is_coloured { format!("{style}{line}{style:#}") } else { line.to_owned() }
    }
}

/// What the colour of a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Added,
    Removed,
    Place,
    Heading,
    None,
}

impl Colour {
    /// That of a line of a unified difference.
    pub(crate) fn of_line(line: &str) -> Self {
        match line.as_bytes().first() {
            Some(b'+') => Self::Added,
            Some(b'-') => Self::Removed,
            Some(b'@') => Self::Place,
            Some(_) | None => Self::None,
        }
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
    /// Of each row but the head.
    names: Vec<String>,
    /// How many columns are always shown; the others are only in [`Form::Wide`].
    n_columns: usize,
    /// How many of the first columns make the name of a row.
    n_name_columns: usize,
    heading: String,
    note: String,
}

impl Table {
    /// A table that has only its head, one line and cut as well: where a row is a field, the first may be a name.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self::new_wide(head, &[])
    }

    /// A table with further columns that are shown only if a wide one is asked for. Rows have cells for all.
    pub(crate) fn new_wide(head: &[&str], further: &[&str]) -> Self {
        let cells = head.iter().chain(further);
        Self {
            rows: vec![cells.map(|cell| one_line(cell)).collect()],
            names: vec![],
            n_columns: head.len(),
            n_name_columns: 1,
            heading: String::new(),
            note: String::new(),
        }
    }

    /// The same with a line above it.
    pub(crate) fn headed(self, heading: &str) -> Self {
        Self { heading: format!("{}\n", clean(heading)), ..self }
    }

    /// The same with lines below it.
    pub(crate) fn noted(self, note: String) -> Self {
        Self { note, ..self }
    }

    /// The same with another number of first columns that make the name of a row; of a table without rows.
    pub(crate) fn named_by(self, n_name_columns: usize) -> Self {
        Self { n_name_columns, ..self }
    }

    /// Adds a row, each cell in [`one_line`].
    pub(crate) fn push(&mut self, row: Vec<String>) {
        let name = row.iter().take(self.n_name_columns).map(|cell| clean(cell)).collect::<Vec<_>>().join(" ");
        self.push_named(name, row);
    }

    /// Adds a row whose name is not in its first cells.
    pub(crate) fn push_named(&mut self, name: String, row: Vec<String>) {
        self.names.push(clean(&name));
        self.rows.push(row.iter().map(|cell| one_line(cell)).collect());
    }

    /// All cells, to see whether something has changed.
    pub(crate) fn cells(&self) -> Value {
        Value::from_iter(self.rows.iter().map(|row| row.as_slice()))
    }

    /// The rows that an earlier table did not have, and the names that are gone since.
    pub(crate) fn news_since(&self, last: &Self) -> String {
        let old: BTreeSet<&Vec<String>> = last.rows.iter().skip(1).collect();
        let aligned = self.aligned(self.n_columns);
        let lines = self.rows.iter().zip(aligned.lines()).skip(1);
        let mut text: String =
            lines.filter(|(row, _)| !old.contains(row)).map(|(_, line)| format!("{line}\n")).collect();
        let names: BTreeSet<&String> = self.names.iter().collect();
        let gone = last.names.iter().filter(|name| !names.contains(name));
        text.extend(gone.map(|name| format!("gone: {name}\n")));
        text
    }

    /// The rows with aligned columns, one line each.
    pub(crate) fn render(&self) -> String {
        format!("{}{}{}", self.heading, self.aligned(self.n_columns), self.note)
    }

    fn render_wide(&self) -> String {
        format!("{}{}{}", self.heading, self.aligned(usize::MAX), self.note)
    }

    /// The name of each row, one a line; of several rows in a row with the same name, one.
    fn render_names(&self) -> String {
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        names.dedup();
        names.into_iter().map(|name| format!("{name}\n")).collect()
    }

    fn aligned(&self, n_columns: usize) -> String {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or_default().min(n_columns);
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

/// Prints an answer in the form that was asked for, see [`Form::or_default`]. One that has no name is a table where names are wanted.
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
        Form::Yaml => print(&yaml(answer)?),
        Form::Name => print(&name_of(answer).unwrap_or_else(table)),
        Form::Table | Form::Wide => print(&table()),
    }
}

/// Prints a list in the form that was asked for.
///
/// # Errors
///
/// As [`print()`].
pub(crate) fn print_list(
    asked: Option<Form>,
    answer: &Value,
    table: impl FnOnce() -> Table,
) -> Result<(), Failure> {
    match Form::or_default(asked) {
        Form::Json => print_json(answer),
        Form::Yaml => print(&yaml(answer)?),
        Form::Name => print(&table().render_names()),
        Form::Table => print(&table().render()),
        Form::Wide => print(&table().render_wide()),
    }
}

/// One of several answers that come one after the other: JSON is one line, YAML one document.
///
/// # Errors
///
/// If it is no YAML.
pub(crate) fn in_turn(form: Form, answer: &Value, table: impl FnOnce() -> String) -> Result<String, Failure> {
    Ok(match form {
        Form::Json => format!("{answer}\n"),
        Form::Yaml => format!("---\n{}", yaml(answer)?),
        Form::Name => name_of(answer).unwrap_or_else(table),
        Form::Table | Form::Wide => table(),
    })
}

fn yaml(answer: &Value) -> Result<String, Failure> {
    serde_saphyr::to_string(answer).map_err(|error| Failure::Failed(format!("cannot write YAML: {error}")))
}

/// The line with what others call an answer by; for a change that is its revision.
fn name_of(answer: &Value) -> Option<String> {
    let name =
        ["id", "name", "revision"].iter().map(|key| cell(&answer[*key])).find(|name| !name.is_empty())?;
    Some(format!("{}\n", clean(&name)))
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
    fn lines_of_a_difference_have_colours_only_where_they_are_wanted() {
        let coloured = Ink { is_coloured: true };
        let paint = |ink: Ink, line: &str| ink.paint(line, Colour::of_line(line));
        assert_eq!(paint(coloured, "+ttl: 2"), "\u{1b}[32m+ttl: 2\u{1b}[0m");
        assert_eq!(paint(coloured, "-ttl: 1"), "\u{1b}[31m-ttl: 1\u{1b}[0m");
        assert_eq!(paint(coloured, " name: c"), " name: c");
        assert_eq!(paint(Ink::PLAIN, "+ttl: 2"), "+ttl: 2");
    }

    #[test]
    fn names_are_whole_and_further_columns_are_for_wide_screens() {
        let mut table = Table::new_wide(&["KIND", "NAME"], &["MORE"]).headed("revision 7").named_by(2);
        let long = "x".repeat(MAX_CELL_CHARS + 1);
        for name in ["a\n", "b", "b", &long] {
            table.push(vec!["k".to_owned(), name.to_owned(), "m".to_owned()]);
        }
        assert_eq!(table.render_names(), format!("k a\\n\nk b\nk {long}\n"));
        assert!(table.render().starts_with("revision 7\nKIND  NAME\nk     a\\n\n"), "{}", table.render());
        assert!(table.render_wide().lines().nth(1).unwrap().ends_with("MORE"));
        let mut later = Table::new_wide(&["KIND", "NAME"], &["MORE"]).named_by(2);
        later.push(vec!["k".to_owned(), "b".to_owned(), "m".to_owned()]);
        later.push(vec!["k".to_owned(), "c".to_owned(), "m".to_owned()]);
        assert_eq!(later.news_since(&table), format!("k     c\ngone: k a\\n\ngone: k {long}\n"));
        assert_eq!(later.news_since(&later), "");
        assert_eq!(name_of(&serde_json::json!({"revision": 7})).unwrap(), "7\n");
    }

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
