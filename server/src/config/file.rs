//! The `--config` file: its settings become the defaults of the flags.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Command;
use serde::Deserialize;

use crate::config::ConfigError;

/// A setting as it is written.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Setting {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<String>),
}

impl Setting {
    fn into_values(self) -> Vec<String> {
        match self {
            Self::Bool(truth) => vec![truth.to_string()],
            Self::Integer(number) => vec![number.to_string()],
            Self::Float(number) => vec![number.to_string()],
            Self::Text(text) => vec![text],
            Self::List(list) => list,
        }
    }
}

/// Reads the file and makes its settings the defaults of the flags of `serve`.
///
/// # Errors
///
/// [`ConfigError::File`] if it cannot be read, is not YAML or JSON, has a key that is no flag, or a value that the flag
/// would refuse.
pub fn apply(mut serve: Command, path: &Path) -> Result<Command, ConfigError> {
    let wrong = |message: String| ConfigError::File { path: path.to_owned(), message };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let settings: BTreeMap<String, Option<Setting>> =
        serde_saphyr::from_str(&text).map_err(|error| wrong(first_line(&error.to_string())))?;
    let keys: Vec<String> = serve
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .filter(|long| !["config", "help", "version"].contains(long))
        .map(ToOwned::to_owned)
        .collect();
    for (key, setting) in settings {
        if !keys.contains(&key) {
            return Err(wrong(unknown(&key, &keys)));
        }
        // `watch:` with nothing after it is no setting.
        let Some(setting) = setting else { continue };
        let values = setting.into_values();
        check(&serve, &key, &values).map_err(wrong)?;
        serve = serve.mut_arg(key.replace('-', "_"), |argument| argument.default_values(values));
    }
    Ok(serve)
}

/// Tries the values as flags, because clap explains an error of a flag better than one of a default.
fn check(serve: &Command, key: &str, values: &[String]) -> Result<(), String> {
    let flags = values.iter().map(|value| format!("--{key}={value}"));
    let words = ["xds-server".to_owned()].into_iter().chain(flags);
    let Err(error) = serve.clone().no_binary_name(false).try_get_matches_from(words) else { return Ok(()) };
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text =
        text.split("\n\nUsage:").next().and_then(|text| text.split("\n\nFor more").next()).unwrap_or(text);
    Err(format!("{key}: {}", text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

fn unknown(key: &str, keys: &[String]) -> String {
    let nearest = keys
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&key.to_lowercase().replace('_', "-"), known), known))
        .filter(|(distance, known)| *distance <= known.len() / 3)
        .min();
    match nearest {
        Some((_, known)) => format!("unknown key `{key}`; did you mean `{known}`?"),
        None => format!("unknown key `{key}`; the keys are the names of the flags: {}", keys.join(", ")),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::config::ServeArgs;

    fn parse(file: &str, flags: &[&str]) -> Result<ServeArgs, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        fs::write(&path, file).unwrap();
        let serve = ServeArgs::augment_args(Command::new("xds-server"));
        let serve = apply(serve, &path)
            .map_err(|error| error.to_string().replace(&path.display().to_string(), "F"))?;
        let words = ["xds-server"].into_iter().chain(flags.iter().copied());
        let matches = serve.try_get_matches_from(words).map_err(|error| error.to_string())?;
        ServeArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_gives_defaults_and_flags_win() {
        let file = "xds-listen: 127.0.0.1:7\nwatch: [a, b]\nstrict: true\nmax-streams: 5\npoll-interval: 2s\nprobe-listen:\n";
        let args = parse(file, &["--max-streams=6"]).unwrap();
        assert_eq!(args.xds_listen.port(), 7);
        assert_eq!(args.watch.len(), 2);
        assert!(args.sources.strict);
        assert_eq!(args.limits.max_streams, 6);
        assert_eq!(args.probe_listen, None);
        let args = parse(r#"{"strict": true, "watch": "a"}"#, &["--strict=false", "--watch=c"]).unwrap();
        assert!(!args.sources.strict);
        assert_eq!(args.watch, [Path::new("c")]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table = [
            ("xds_listen: 1", "config file F: unknown key `xds_listen`; did you mean `xds-listen`?"),
            ("log-formt: json", "config file F: unknown key `log-formt`; did you mean `log-format`?"),
            ("config: x", "config file F: unknown key `config`; the keys are"),
            (
                "poll-interval: 5",
                "config file F: poll-interval: invalid value '5' for '--poll-interval <DURATION>': the unit is missing: write 5s, 5ms or 5m",
            ),
            (
                "log-format: jsn",
                "config file F: log-format: invalid value 'jsn' for '--log-format <FORMAT>' [possible values: text, json]",
            ),
            ("- a", "config file F: "),
            ("a: [", "config file F: "),
        ];
        for (file, wrong) in table {
            let error = parse(file, &[]).unwrap_err();
            assert!(error.starts_with(wrong), "{file}: {error}");
        }
    }
}
