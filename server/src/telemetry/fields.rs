//! The fields of an event as text, with nothing in them that could pass for another event.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use xds_units::escape::Limited;

/// Writes the message, then `name=value` for each field; every value is escaped, and cut at [`MAX_VALUE_BYTES`].
#[derive(Clone, Copy, Debug)]
pub(super) struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = Visitor { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct Visitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl Visitor<'_> {
    fn value(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if name != "message" {
            let name = name.strip_prefix("r#").unwrap_or(name);
            match self.writer.has_ansi_escapes() {
                true => write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
                false => write!(self.writer, "{name}=")?,
            }
        }
        let mut limited = Limited::new(&mut self.writer, MAX_VALUE_BYTES);
        limited.write_fmt(value)?;
        limited.finish()
    }

    fn record(&mut self, name: &str, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.value(name, value);
        }
    }
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record("message", format_args!("{value}")),
            name => self.record(name, format_args!("{value:?}")),
        }
    }

    /// An error with its causes.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record(field.name(), format_args!("{}", xds_control::chain(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record(field.name(), format_args!("{value:?}"));
    }
}

/// Escapes what JSON leaves as it is and a terminal does not: controls beyond ASCII, separators of lines, marks of direction.
///
/// Such characters can only be inside of JSON's strings, where `\u…` means the same.
#[derive(Clone, Debug)]
pub(super) struct JsonWriter<W>(pub(super) W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for JsonWriter<W> {
    type Writer = JsonLine<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        JsonLine(self.0.make_writer())
    }
}

/// Where one event is written; it comes as a whole.
#[derive(Debug)]
pub(super) struct JsonLine<W>(W);

impl<W: Write> Write for JsonLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| text.contains(is_misleading)) else {
            return self.0.write(bytes);
        };
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            if is_misleading(character) {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            } else {
                escaped.push(character);
            }
        }
        self.0.write_all(escaped.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// All of these have four hexadecimal digits at most.
const fn is_misleading(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Enough for every message of ours, and for a line of someone else's.
const MAX_VALUE_BYTES: usize = 1024;
