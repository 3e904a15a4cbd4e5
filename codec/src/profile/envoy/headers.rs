//! Changes of headers, and the commands in their values such as `%REQ(x)%` (row D120).

use super::super::rule::{Scope, enum_at, has};
use super::shared::refuse;
use crate::diagnostic::echo;
use crate::message::{Message, child, list, text, texts};
use crate::path::Path;

const ROW: (&str, &str) = ("D120", "envoy-header-change");

/// Checks the headers that a route, a virtual host, a configuration or a weighted cluster adds and removes.
pub(super) fn changes(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    for field in ["request_headers_to_add", "response_headers_to_add"] {
        let list_path = path.field(field);
        for (index, option) in list(message, field).iter().enumerate() {
            let path = list_path.index(index);
            if has(option, "append") && enum_at(option, "append_action") != 0 {
                refuse(ROW, &path, "append_action", "Envoy rejects `append_action` beside `append`", scope);
            }
            let Some(header) = child(option, "header") else { continue };
            let path = path.field("header");
            let name = text(&header, "key").unwrap_or_default();
            if is_fixed(&name) {
                let text =
                    format!("Envoy does not change the header {}, and rejects the resource", echo(&name));
                refuse(ROW, &path, "key", text, scope);
            }
            if let Err(wrong) = text(&header, "value").map_or(Ok(()), |value| format(&value)) {
                refuse(ROW, &path, "value", format!("Envoy rejects the value: {wrong}"), scope);
            }
        }
    }
    for field in ["request_headers_to_remove", "response_headers_to_remove"] {
        let list_path = path.field(field);
        for (index, name) in texts(message, field).enumerate().filter(|(_, name)| is_fixed(name)) {
            let text = format!("Envoy does not remove the header {}, and rejects the resource", echo(&name));
            refuse(ROW, &list_path.index(index), "", text, scope);
        }
    }
}

fn is_fixed(name: &str) -> bool {
    name.starts_with(':') || name.eq_ignore_ascii_case("host")
}

/// Checks the formats of access logs and local replies. Formatters of extensions may add commands.
pub(super) fn substitution(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if has(message, "formatters") {
        return;
    }
    let source = child(message, "text_format_source").and_then(|source| text(&source, "inline_string"));
    for (field, value) in
        [("text_format", text(message, "text_format")), ("text_format_source.inline_string", source)]
    {
        if let Err(wrong) = value.map_or(Ok(()), |value| format(&value)) {
            refuse(ROW, path, field, format!("Envoy rejects the format: {wrong}"), scope);
        }
    }
}

/// Checks the commands of a text.
fn format(value: &str) -> Result<(), String> {
    let mut rest = value;
    let mut column = 1;
    while let Some((before, after)) = rest.split_once('%') {
        column += before.chars().count() + 1;
        if let Some(next) = after.strip_prefix('%') {
            rest = next;
            column += 1;
            continue;
        }
        let Some((name, arguments, next)) = command(after) else {
            return Err(format!(
                "column {}: `%` begins no command; write `%%` for the character",
                column - 1
            ));
        };
        let at = column - 1;
        if PLAIN.split(' ').any(|known| known == name) {
            if arguments.is_some() {
                return Err(format!("column {at}: `%{name}%` takes no arguments"));
            }
        } else if WITH_ARGUMENTS.contains(&name) {
            if arguments.is_none_or(str::is_empty) {
                return Err(format!("column {at}: `%{name}%` needs arguments, as in `%{name}(x)%`"));
            }
        } else if !WITH_OR_WITHOUT.contains(&name) {
            return Err(format!("column {at}: there is no command `%{name}%`"));
        }
        let n_alternatives = arguments.map_or(0, |arguments| arguments.matches('?').count());
        if HEADERS.contains(&name) && n_alternatives > 1 {
            return Err(format!("column {at}: `%{name}%` takes at most two headers"));
        }
        column += after.get(..after.len() - next.len()).unwrap_or_default().chars().count();
        rest = next;
    }
    Ok(())
}

/// A command after its `%`: `NAME(arguments):length%`. Returns the name, the arguments and the rest.
fn command(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
    let (name, rest) = text.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    let Some(inside) = rest.strip_prefix('(') else { return Some((name, None, end_of(rest)?)) };
    let ends = inside.match_indices(')');
    ends.take(MAX_PARENTHESES).find_map(|(at, _)| {
        let next = end_of(inside.get(at + 1..)?)?;
        Some((name, inside.get(..at), next))
    })
}

/// The rest after `:length%` or `%`.
fn end_of(text: &str) -> Option<&str> {
    let rest = match text.strip_prefix(':') {
        Some(length) => {
            let digits = length.trim_start_matches(|c: char| c.is_ascii_digit());
            (digits.len() < length.len()).then_some(digits)?
        }
        None => text,
    };
    rest.strip_prefix('%')
}

/// The limit of parentheses that are tried as the end of arguments.
const MAX_PARENTHESES: usize = 64;

const HEADERS: [&str; 6] =
    ["REQ", "RESP", "TRAILER", "REQUEST_HEADER", "RESPONSE_HEADER", "RESPONSE_TRAILER"];

/// Commands without arguments, of Envoy 1.40.
const PLAIN: &str = "\
    ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS \
    CUSTOM_FLAGS DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT \
    DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_PORT \
    DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION \
    DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS \
    DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_CLOSE_REASON DOWNSTREAM_LOCAL_DNS_SAN \
    DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN DOWNSTREAM_LOCAL_PORT \
    DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 \
    DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 DOWNSTREAM_PEER_CHAIN_SERIALS DOWNSTREAM_PEER_DNS_SAN \
    DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN \
    DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT \
    DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER \
    DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON \
    DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER \
    HOSTNAME LOCAL_REPLY_BODY PROTOCOL QUERY_PARAMS REQUESTED_SERVER_NAME REQUEST_DURATION REQUEST_HEADERS_BYTES \
    REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES \
    RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME SPAN_ID STREAM_ID \
    TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW \
    UPSTREAM_CONNECTION_ID UPSTREAM_CONNECTION_IDS_ATTEMPTED UPSTREAM_CONNECTION_POOL_READY_DURATION \
    UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT \
    UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST \
    UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME \
    UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT UPSTREAM_HOST_NAME_WITHOUT_PORT \
    UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_CLOSE_REASON UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN \
    UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN \
    UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS \
    UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TLS_CIPHER UPSTREAM_TLS_SESSION_ID \
    UPSTREAM_TLS_VERSION UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT \
    VIRTUAL_CLUSTER_NAME";

const WITH_ARGUMENTS: [&str; 18] = [
    "CEL",
    "CLUSTER_METADATA",
    "COALESCE",
    "COMMON_DURATION",
    "DYNAMIC_METADATA",
    "ENVIRONMENT",
    "FILTER_STATE",
    "METADATA",
    "PER_REQUEST_STATE",
    "QUERY_PARAM",
    "REQ",
    "REQUEST_HEADER",
    "RESP",
    "RESPONSE_HEADER",
    "RESPONSE_TRAILER",
    "TRAILER",
    "UPSTREAM_FILTER_STATE",
    "UPSTREAM_METADATA",
];

const WITH_OR_WITHOUT: [&str; 17] = [
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "EMIT_TIME",
    "EMIT_TIME_LOCAL",
    "GRPC_STATUS",
    "PATH",
    "RESPONSE_CODE_DETAILS",
    "START_TIME",
    "START_TIME_LOCAL",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
];
