//! Secret parts of messages: the rules, and the search for the first one in a message.

use prost_reflect::FieldDescriptor;

use crate::encode::decode_any;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Item, Message, key_text, text};
use crate::path::Path;

/// Facts about a part of a message that follow from the outer messages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context {
    /// True if every value in it is secret: nobody may have it who proves nothing.
    pub(crate) is_secret: bool,
    /// True if no value in it is shown: it is secret, or it may tell a credential, such as the value of `authorization` that a route
    /// matches.
    pub(crate) is_hidden: bool,
}

impl Context {
    /// The fields of the message that are set, each with the context of its values.
    pub(crate) fn fields(
        self,
        inner: &Inner,
        message: &Message,
    ) -> impl Iterator<Item = (FieldDescriptor, Self)> {
        let facts = inner.facts.of(message.descriptor());
        let is_secret_header = message.name() == "envoy.config.core.v3.HeaderValue"
            && is_credential_header(&text(message, "key").unwrap_or_default());
        let is_hidden_match = message.name() == "envoy.config.route.v3.HeaderMatcher"
            && is_hidden_in_matches(&text(message, "name").unwrap_or_default());
        let is_data_source = message.name() == "envoy.config.core.v3.DataSource";
        let is_symmetric_key = is_data_source && has_symmetric_key(message);
        message.fields().map(move |field| {
            let is_marked = facts.field(field.name()).is_some_and(|facts| facts.is_sensitive);
            let names_a_place = is_data_source && !field.name().starts_with("inline_");
            let is_secret = (self.is_secret && !names_a_place)
                || is_marked
                || (is_secret_header && matches!(field.name(), "value" | "raw_value"))
                || (is_symmetric_key && field.name().starts_with("inline_"));
            let is_hidden = (self.is_hidden && !names_a_place)
                || is_secret
                || (is_hidden_match && !SHOWN_OF_MATCHES.contains(&field.name()));
            (field, Self { is_secret, is_hidden })
        })
    }

    /// The context of an entry of a `google.protobuf.Struct`, whose fields have no facts but their names.
    pub(crate) fn of_key(self, key: &str) -> Self {
        let key = key.to_ascii_lowercase().replace('-', "_");
        Self { is_hidden: self.is_hidden || SECRET_KEYS.contains(&&*key), ..self }
    }
}

/// Returns `true` if a text has a user and a password of a URI: `https://user:password@host`.
#[must_use]
pub fn has_userinfo(text: &str) -> bool {
    text.match_indices("://").any(|(at, separator)| {
        let rest = text.get(at + separator.len()..).unwrap_or_default();
        let authority = rest.split(|end: char| "/?#\"'<>".contains(end) || end.is_whitespace()).next();
        let userinfo = authority.and_then(|authority| Some(authority.rsplit_once('@')?.0));
        userinfo.is_some_and(|userinfo| userinfo.split_once(':').is_some_and(|(_, word)| !word.is_empty()))
    })
}

/// Returns `true` if an inline text is a JSON Web Key Set with a symmetric key, by which tokens can be made.
fn has_symmetric_key(data_source: &Message) -> bool {
    let is_one = |text: &str| text.contains("\"kty\"") && text.contains("\"oct\"");
    let bytes = data_source.descriptor().get_field_by_name("inline_bytes");
    let bytes = bytes.and_then(|field| data_source.value(&field));
    let bytes = bytes.and_then(|value| value.as_scalar()?.as_bytes().cloned()).unwrap_or_default();
    is_one(&text(data_source, "inline_string").unwrap_or_default())
        || is_one(&String::from_utf8_lossy(&bytes))
}

/// The type of secrets. One that cannot be decoded is hidden as a whole.
pub(crate) const SECRET_TYPE: &str = "/envoy.extensions.transport_sockets.tls.v3.Secret";

/// Returns `true` if a header of this name carries a credential.
#[must_use]
pub fn is_credential_header(name: &str) -> bool {
    SECRET_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(name))
}

/// Returns `true` if a match of this header would show a credential. Cookies that routes match choose a backend.
#[must_use]
pub fn is_hidden_in_matches(name: &str) -> bool {
    is_credential_header(name) && !name.to_ascii_lowercase().ends_with("cookie")
}

/// The fields of a match of a header that say nothing of its value.
const SHOWN_OF_MATCHES: [&str; 4] =
    ["name", "present_match", "invert_match", "treat_missing_header_as_empty"];

/// Names of secret entries of a Struct, such as the configuration of an extension whose type nobody knows.
const SECRET_KEYS: [&str; 9] = [
    "password",
    "passwd",
    "secret",
    "client_secret",
    "token",
    "access_token",
    "private_key",
    "api_key",
    "authorization",
];

const SECRET_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token"];

/// The path of the first secret in the message; `None` if it has none.
pub(crate) fn find(inner: &Inner, message: &Message) -> Option<String> {
    Search { inner, n_anys: 0 }.message(message, &Path::Root, Context::default())
}

struct Search<'c> {
    inner: &'c Inner,
    n_anys: usize,
}

impl Search<'_> {
    fn message(&mut self, message: &Message, path: &Path<'_>, context: Context) -> Option<String> {
        if message.name() == "google.protobuf.Any" {
            return self.any(message, path, context);
        }
        context.fields(self.inner, message).find_map(|(field, context)| {
            let path = path.field(field.name());
            if field.is_map() {
                let mut entries = message.entries(&field);
                return entries
                    .find_map(|(key, value)| self.value(&value, &path.key(&key_text(&key)), context));
            }
            if field.is_list() {
                let mut items = message.items(&field).enumerate();
                return items.find_map(|(index, item)| self.value(&item, &path.index(index), context));
            }
            self.value(&message.value(&field)?, &path, context)
        })
    }

    fn value(&mut self, value: &Item, path: &Path<'_>, context: Context) -> Option<String> {
        match value {
            Item::Message(message) => self.message(message, path, context),
            Item::Scalar(_) => context.is_secret.then(|| path.to_string()),
        }
    }

    fn any(&mut self, any: &Message, path: &Path<'_>, context: Context) -> Option<String> {
        let type_url = text(any, "type_url").unwrap_or_default();
        if self.n_anys < MAX_ANY_DEPTH
            && let Some(message) = decode_any(self.inner, any)
        {
            self.n_anys += 1;
            let found = self.message(&message, path, context);
            self.n_anys -= 1;
            return found;
        }
        (context.is_secret || type_url.ends_with(SECRET_TYPE)).then(|| path.to_string())
    }
}
