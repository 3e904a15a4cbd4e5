//! Secret parts of messages: the rules, and the search for the first one in a message.

use prost_reflect::FieldDescriptor;

use crate::encode::decode_any;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Item, Message, key_text, text};
use crate::path::Path;

/// Facts about a part of a message that follow from the outer messages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context {
    /// True if every value in it is secret.
    pub(crate) is_secret: bool,
}

impl Context {
    /// The fields of the message that are set, each with the context of its values.
    pub(crate) fn fields(
        self,
        inner: &Inner,
        message: &Message,
    ) -> impl Iterator<Item = (FieldDescriptor, Self)> {
        let facts = inner.facts.of(message.descriptor());
        let is_secret_header = is_secret_header(message);
        let is_data_source = message.name() == "envoy.config.core.v3.DataSource";
        message.fields().map(move |field| {
            let is_marked = facts.field(field.name()).is_some_and(|facts| facts.is_sensitive);
            let names_a_place = is_data_source && !field.name().starts_with("inline_");
            let is_secret = (self.is_secret && !names_a_place)
                || is_marked
                || (is_secret_header && matches!(field.name(), "value" | "raw_value"));
            (field, Self { is_secret })
        })
    }
}

/// The type of secrets. One that cannot be decoded is hidden as a whole.
pub(crate) const SECRET_TYPE: &str = "/envoy.extensions.transport_sockets.tls.v3.Secret";

/// Returns `true` if the message is a header that carries a credential.
fn is_secret_header(message: &Message) -> bool {
    if message.name() != "envoy.config.core.v3.HeaderValue" {
        return false;
    }
    let key = text(message, "key").unwrap_or_default();
    SECRET_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(&key))
}

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
