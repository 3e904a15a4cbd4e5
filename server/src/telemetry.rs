//! Logging: events as text or as JSON, on standard error.
//!
//! An event is always one line: texts from outside are escaped, and in the text format also cut.
//!
//! With `--log-format json` every event is one JSON object on one line: `timestamp`, `level`, `target`, `message` and the
//! event's own fields side by side. Standard output is left to what commands print.

mod fields;

use std::io::{self, IsTerminal as _};

use fields::{EscapedFields, JsonWriter};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A readable line, coloured on a terminal.
    #[default]
    Text,
    /// A JSON object per line, with fields at the top level.
    Json,
}

/// The events that are logged, and their form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The form.
    pub format: LogFormat,
    /// A level or a filter in the syntax of `RUST_LOG`.
    pub filter: String,
}

impl LogConfig {
    /// Checks the filter.
    ///
    /// # Errors
    ///
    /// [`LogFilterError`] if it is neither a level nor a filter.
    pub fn new(format: LogFormat, filter: &str) -> Result<Self, LogFilterError> {
        // A lone word that is no level would pass as the name of a target, and silence everything.
        let is_word = filter.chars().all(char::is_alphanumeric);
        let is_level = ["error", "warn", "info", "debug", "trace", "off"]
            .iter()
            .any(|level| filter.eq_ignore_ascii_case(level));
        if is_word && !is_level {
            return Err(LogFilterError(filter.to_owned()));
        }
        EnvFilter::try_new(filter).map_err(|_| LogFilterError(filter.to_owned()))?;
        Ok(Self { format, filter: filter.to_owned() })
    }
}

/// A text that is neither a level nor a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a log level: use error, warn, info, debug or trace, or a filter such as info,xds_session=debug"
)]
pub struct LogFilterError(String);

/// Sends the process's log events to standard error from now on. A second call changes nothing.
pub fn init(config: &LogConfig) {
    let is_set = subscriber(config, io::stderr).try_init();
    if is_set.is_err() {
        tracing::debug!("logging was set up before");
    }
}

fn subscriber<W>(config: &LogConfig, writer: W) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::new(&config.filter);
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let layer = tracing_subscriber::fmt::layer().with_ansi(colour);
    match config.format {
        LogFormat::Text => {
            let layer = layer.with_writer(writer).fmt_fields(EscapedFields);
            Box::new(tracing_subscriber::registry().with(filter).with(layer))
        }
        LogFormat::Json => {
            let layer = layer.with_writer(JsonWriter(writer)).json();
            let layer = layer.flatten_event(true).with_current_span(false).with_span_list(false);
            Box::new(tracing_subscriber::registry().with(filter).with(layer))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_json_event_is_one_line_with_its_fields_at_the_top_level() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let config = LogConfig::new(LogFormat::Json, "info").unwrap();
        let subscriber = subscriber(&config, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            let addr: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
            tracing::info!(service = "xds", %addr, "listening");
            tracing::debug!("not written");
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["message"], "listening");
        assert_eq!(event["service"], "xds");
        assert_eq!(event["addr"], "127.0.0.1:1");
        assert_eq!(event["level"], "INFO");
    }

    /// The text of one event.
    fn written(format: LogFormat, event: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let config = LogConfig::new(format, "info").unwrap();
        tracing::subscriber::with_default(subscriber(&config, move || writer.clone()), event);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn whatever_is_in_an_event_it_is_one_line_without_controls() {
        let bad = "a\nINFO forged\r\u{1b}[2J\u{9b}2J\u{202e}\u{2066}\u{2028}b";
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = written(format, || {
                let path = std::path::Path::new(bad);
                let error = io::Error::other(bad);
                tracing::warn!(
                    node = bad,
                    display = %bad,
                    path = %path.display(),
                    debug = ?bad,
                    error = &error as &dyn std::error::Error,
                    "a message with {bad}"
                );
            });
            let line = text.strip_suffix('\n').unwrap();
            let is_plain =
                |c: char| !c.is_control() && !('\u{2028}'..='\u{202e}').contains(&c) && c != '\u{2066}';
            assert!(line.chars().all(is_plain), "{line:?}");
            assert!(line.contains("forged"), "{line}");
            if format == LogFormat::Json {
                let event: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(event["display"], bad, "JSON keeps what is escaped");
            }
        }
    }

    #[test]
    fn an_event_as_text_reads_as_before_and_long_values_are_cut() {
        let text = written(LogFormat::Text, || {
            let inner = io::Error::from(io::ErrorKind::NotFound);
            let error = io::Error::other(inner);
            tracing::info!(service = "xds", n = 1, error = &error as &dyn std::error::Error, "listening");
        });
        let (_, event) = text.split_once("tests: ").unwrap();
        assert_eq!(event, "listening service=\"xds\" n=1 error=entity not found\n");
        let text = written(LogFormat::Text, || tracing::info!(id = "x".repeat(5000), "a node"));
        assert!(text.len() < 1200 && text.ends_with("xxx…(5002 bytes)\n"), "{text}");
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for good in ["info", "WARN", "info,xds_session=debug", "xds_server::source=trace"] {
            assert!(LogConfig::new(LogFormat::Text, good).is_ok(), "{good}");
        }
        for bad in ["inof", "", "xds=loud"] {
            assert!(LogConfig::new(LogFormat::Text, bad).is_err(), "{bad}");
        }
    }
}
