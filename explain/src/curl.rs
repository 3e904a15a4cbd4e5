//! A `curl` command as a request.

use std::net::IpAddr;

use crate::request::Request;

/// Why a command cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurlError {
    /// A quotation mark has no partner.
    #[error("the curl command has a quotation mark without a partner")]
    Quote,
    /// It has no URL.
    #[error("the curl command has no URL")]
    NoUrl,
    /// An option has no value.
    #[error("{0} of the curl command needs a value")]
    NoValue(String),
    /// The scheme is not HTTP.
    #[error("{0:?} is no URL with http:// or https://")]
    BadUrl(String),
    /// It is too long.
    #[error("the curl command has more than {MAX_BYTES} bytes")]
    TooLong,
}

/// Reads a `curl` command as it is pasted from a shell or a browser. Options that do not change where a request goes are skipped. The port
/// and the address are those of the URL, unless `--connect-to` or `--resolve` say otherwise.
///
/// # Errors
///
/// If it has no URL, or ends in the middle of something.
pub fn curl(command: &str) -> Result<Request, CurlError> {
    if command.len() > MAX_BYTES {
        return Err(CurlError::TooLong);
    }
    let mut words = words(command)?.into_iter().peekable();
    words.next_if(|word| word == "curl");
    let mut read = Command { request: Request::get("", "/"), ..Command::default() };
    while let Some(word) = words.next() {
        if !word.starts_with('-') || word == "-" {
            read.url.get_or_insert(word);
            continue;
        }
        let (option, mut attached) = option(&word);
        read.option(&option, || {
            attached.take().or_else(|| words.next()).ok_or_else(|| CurlError::NoValue(option.clone()))
        })?;
    }
    read.finish()
}

/// What is read of a command.
#[derive(Default)]
struct Command {
    request: Request,
    url: Option<String>,
    method: Option<String>,
    host: Option<String>,
    /// The parts of the body.
    data: Vec<String>,
    /// True if the parts of the body belong to the query.
    is_get: bool,
}

impl Command {
    fn option(
        &mut self,
        option: &str,
        mut value: impl FnMut() -> Result<String, CurlError>,
    ) -> Result<(), CurlError> {
        match option {
            "-X" | "--request" => self.method = Some(value()?),
            "-H" | "--header" => self.header(&value()?),
            "-A" | "--user-agent" => self.push("user-agent", value()?),
            "-e" | "--referer" => self.push("referer", value()?),
            "-b" | "--cookie" => self.push("cookie", value()?),
            "-u" | "--user" => {
                value()?;
                self.push("authorization", "Basic …".to_owned());
            }
            "-d" | "--data" | "--data-raw" | "--data-binary" | "--data-ascii" | "--data-urlencode" => {
                self.body("application/x-www-form-urlencoded", value()?);
            }
            "--json" => self.body("application/json", value()?),
            "-F" | "--form" => self.body("multipart/form-data", value()?),
            "-G" | "--get" => self.is_get = true,
            "-I" | "--head" => self.method = Some("HEAD".to_owned()),
            "--url" => self.url = Some(value()?),
            "--resolve" => {
                let value = value()?;
                let ip = value.splitn(3, ':').nth(2);
                self.request.connection.to = ip.and_then(|ip| ip.trim_matches(['[', ']']).parse().ok());
            }
            "--connect-to" => {
                let value = value()?;
                let mut parts = value.split(':').skip(2);
                self.request.connection.to = parts.next().and_then(|ip| ip.parse().ok());
                self.request.connection.port = parts.next().and_then(|port| port.parse().ok());
            }
            option if WITH_VALUE.contains(&option) => drop(value()?),
            _ => {}
        }
        Ok(())
    }

    fn header(&mut self, header: &str) {
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        let value = value.trim().to_owned();
        match name.trim() {
            name if name.eq_ignore_ascii_case("host") => self.host = Some(value),
            name => self.push(&name.to_ascii_lowercase(), value),
        }
    }

    fn push(&mut self, name: &str, value: String) {
        self.request.headers.push((name.to_owned(), value));
    }

    fn body(&mut self, kind: &str, data: String) {
        self.data.push(data);
        if !self.request.headers.iter().any(|(name, _)| name == "content-type") {
            self.push("content-type", kind.to_owned());
        }
    }

    fn finish(self) -> Result<Request, CurlError> {
        let Self { mut request, url, method, host, data, is_get } = self;
        let form = ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned());
        request.headers.retain(|header| !is_get || *header != form);
        let default = if data.is_empty() || is_get { "GET" } else { "POST" };
        request.method = method.unwrap_or_else(|| default.to_owned());
        apply_url(&mut request, &url.ok_or(CurlError::NoUrl)?, host)?;
        if is_get && !data.is_empty() {
            let mark = if request.path.contains('?') { '&' } else { '?' };
            request.path = format!("{}{mark}{}", request.path, data.join("&"));
        }
        Ok(request)
    }
}

fn apply_url(request: &mut Request, url: &str, host: Option<String>) -> Result<(), CurlError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    if scheme != "http" && scheme != "https" {
        return Err(CurlError::BadUrl(url.chars().take(100).collect()));
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    // A fragment stays with the client.
    let path = path.split('#').next().unwrap_or_default();
    request.path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    scheme.clone_into(&mut request.scheme);
    let name = crate::host::without_port(authority);
    let port = authority.get(name.len() + 1..).and_then(|port| port.parse::<u16>().ok());
    let default = if scheme == "https" { 443 } else { 80 };
    request.connection.port = request.connection.port.or(Some(port.unwrap_or(default)));
    request.connection.to = request.connection.to.or_else(|| match name {
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        name => name.trim_matches(['[', ']']).parse().ok(),
    });
    if scheme == "https" {
        request.connection.sni = Some(name.to_owned()).filter(|name| name.parse::<IpAddr>().is_err());
        request.connection.alpn = vec!["h2".to_owned(), "http/1.1".to_owned()];
    }
    // A default port is not sent.
    let sent = if port == Some(default) { name } else { authority };
    request.authority = host.unwrap_or_else(|| sent.to_owned());
    Ok(())
}

/// An option with the value that is attached to it: `-XPUT`, `--request=PUT`.
fn option(word: &str) -> (String, Option<String>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (word.to_owned(), None),
        };
    }
    match word.split_at_checked(2) {
        Some((option, value)) if !value.is_empty() && "XHAebudF".contains(option.get(1..).unwrap_or("?")) => {
            (option.to_owned(), Some(value.to_owned()))
        }
        _ => (word.to_owned(), None),
    }
}

/// The words of a shell command: quotation marks, `$'…'`, backslashes and continued lines.
fn words(command: &str) -> Result<Vec<String>, CurlError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars().peekable();
    while let Some(next) = characters.next() {
        match next {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or(CurlError::Quote)? {
                        '\'' => break,
                        inside => text.push(inside),
                    }
                }
            }
            '$' if characters.peek() == Some(&'\'') => {
                characters.next();
                let text = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or(CurlError::Quote)? {
                        '\'' => break,
                        '\\' => match characters.next().ok_or(CurlError::Quote)? {
                            'n' => text.push('\n'),
                            'r' => text.push('\r'),
                            't' => text.push('\t'),
                            other => text.push(other),
                        },
                        inside => text.push(inside),
                    }
                }
            }
            '"' => {
                let text = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or(CurlError::Quote)? {
                        '"' => break,
                        '\\' => match characters.next().ok_or(CurlError::Quote)? {
                            '\n' => {}
                            escaped @ ('"' | '\\' | '$' | '`') => text.push(escaped),
                            other => text.extend(['\\', other]),
                        },
                        inside => text.push(inside),
                    }
                }
            }
            '\\' => match characters.next() {
                Some('\n') | None => {}
                Some('\r') => drop(characters.next_if_eq(&'\n')),
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Options that have a value and do not change where a request goes.
const WITH_VALUE: &[&str] = &[
    "-o",
    "--output",
    "-m",
    "--max-time",
    "--connect-timeout",
    "-w",
    "--write-out",
    "-x",
    "--proxy",
    "--cacert",
    "--capath",
    "-E",
    "--cert",
    "--key",
    "--cert-type",
    "--key-type",
    "-c",
    "--cookie-jar",
    "-T",
    "--upload-file",
    "--retry",
    "--retry-delay",
    "--limit-rate",
    "--interface",
    "-r",
    "--range",
    "--ciphers",
    "--tls-max",
    "-K",
    "--config",
    "-D",
    "--dump-header",
    "--max-redirs",
    "-y",
    "-Y",
    "-z",
    "--pass",
    "--proxy-user",
    "-U",
    "--trace",
    "--trace-ascii",
    "--unix-socket",
    "--aws-sigv4",
    "--oauth2-bearer",
    "--stderr",
];

/// The longest command that is read.
const MAX_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_as_it_is_pasted() {
        let pasted = r#"curl 'https://shop.test:8443/cart?x=1#top' \
  -H 'x-beta: on' -H "Cookie: a=\"1\"" --compressed -XPUT --data-raw $'it\'s' -o /dev/null"#;
        let request = curl(pasted).unwrap();
        assert_eq!(
            (&*request.method, &*request.scheme, &*request.authority),
            ("PUT", "https", "shop.test:8443")
        );
        assert_eq!(request.path, "/cart?x=1");
        assert_eq!(
            (request.connection.port, request.connection.sni.as_deref()),
            (Some(8443), Some("shop.test"))
        );
        let headers: Vec<(&str, &str)> =
            request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            headers,
            [("x-beta", "on"), ("cookie", "a=\"1\""), ("content-type", "application/x-www-form-urlencoded")]
        );
    }

    #[test]
    fn host_address_and_method_follow_the_options() {
        let request = curl("curl -H Host:a.test http://127.0.0.1:10000").unwrap();
        assert_eq!((&*request.authority, &*request.path, &*request.method), ("a.test", "/", "GET"));
        assert_eq!(request.connection.to, Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(curl("a.test:80/x").unwrap().authority, "a.test");
        assert_eq!(curl("curl -d a=1 a.test").unwrap().method, "POST");
        assert_eq!(curl("curl -G -d a=1 a.test/x").unwrap().path, "/x?a=1");
        assert_eq!(curl("curl -I a.test").unwrap().method, "HEAD");
        let request = curl("curl --resolve a.test:80:10.0.0.1 http://a.test").unwrap();
        assert_eq!(request.connection.to, Some(IpAddr::from([10, 0, 0, 1])));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert_eq!(curl("curl"), Err(CurlError::NoUrl));
        assert_eq!(curl("curl 'http://a"), Err(CurlError::Quote));
        assert_eq!(curl("curl -H"), Err(CurlError::NoValue("-H".to_owned())));
        assert!(matches!(curl("curl ftp://a"), Err(CurlError::BadUrl(_))));
    }
}
