//! Secret parts of messages: the rules, and a test whether a message has any.

use prost_reflect::FieldDescriptor;

use crate::encode::decode_any;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Item, Message, text};

/// Facts about a part of a message that follow from the messages around it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context {
    /// Every value in it is secret.
    pub(crate) is_secret: bool,
}

impl Context {
    /// The fields of the message that are set, each with what is known about its values.
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

/// A secret that cannot be decoded is hidden whole.
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

/// Returns `true` if anything in the message is secret. It stops at the first secret, and keeps nothing that it has read.
pub(crate) fn has_secrets(inner: &Inner, message: &Message) -> bool {
    Search { inner, n_anys: 0 }.message(message, Context::default())
}

struct Search<'c> {
    inner: &'c Inner,
    n_anys: usize,
}

impl Search<'_> {
    fn message(&mut self, message: &Message, context: Context) -> bool {
        if message.name() == "google.protobuf.Any" {
            return self.any(message, context);
        }
        context.fields(self.inner, message).any(|(field, context)| {
            if field.is_map() {
                return message.entries(&field).any(|(_, value)| self.value(&value, context));
            }
            if field.is_list() {
                return message.items(&field).any(|item| self.value(&item, context));
            }
            message.value(&field).is_some_and(|value| self.value(&value, context))
        })
    }

    fn value(&mut self, value: &Item, context: Context) -> bool {
        match value {
            Item::Message(message) => self.message(message, context),
            Item::Scalar(_) => context.is_secret,
        }
    }

    fn any(&mut self, any: &Message, context: Context) -> bool {
        let type_url = text(any, "type_url").unwrap_or_default();
        if self.n_anys < MAX_ANY_DEPTH
            && let Some(message) = decode_any(self.inner, any)
        {
            self.n_anys += 1;
            let has_secrets = self.message(&message, context);
            self.n_anys -= 1;
            return has_secrets;
        }
        context.is_secret || type_url.ends_with(SECRET_TYPE)
    }
}
