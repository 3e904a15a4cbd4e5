//! Files that are part of the program.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Assets;

/// Answers with a file. While one server after the other is replaced, a browser may ask one for a file that only another one has.
pub(crate) fn serve(of: &str, name: &str) -> Response {
    let file = Assets::get(name).filter(|_| hash(name) == of);
    let Some(file) = file else { return StatusCode::NOT_FOUND.into_response() };
    let kind = match name.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    // The address has the hash of the content, so it never changes.
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, [(ETAG, format!("\"{}\"", hash(name)))], file.data).into_response()
}

/// The address of a file.
pub(crate) fn address(name: &str) -> String {
    format!("/ui/{}/{name}", hash(name))
}

fn hash(name: &str) -> String {
    let hash = Assets::get(name).map(|file| file.metadata.sha256_hash()).unwrap_or_default();
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
