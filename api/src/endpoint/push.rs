//! `PUT /v1/files`: other files for a store that several servers share.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use utoipa::ToSchema;
use xds_control::model::{Write, WriteError};
use xds_control::question::{Fields, Part};

use crate::answer::Answer;
use crate::caller::Asked;
use crate::input::{MAX_RESOURCES_BYTES, Params, read_by_parts, read_tree_of};
use crate::problem::{ApiError, Fault};
use crate::served::texts_of;
use crate::state::{ApiState, aside};
use crate::write::{self, WriteParams};

/// All files of a directory.
#[derive(Debug, ToSchema)]
#[schema(as = FilesBody)]
#[expect(dead_code, reason = "only described; the body is read with all its faults, not the first")]
pub(crate) struct FilesBody {
    /// The text of each file, by its path: relative to the directory, with `/` between its parts.
    files: BTreeMap<String, String>,
}

pub(crate) async fn push(
    State(state): State<ApiState>,
    Params(mut params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let is_confirmed = params.take_confirm();
    let mut room = state.trials.room();
    let grow = |n_bytes| room.grow(n_bytes, &state.refusals);
    let (form, bytes) = read_by_parts(&asked.headers, body, MAX_RESOURCES_BYTES, grow).await?;
    let tree = read_tree_of(&state, form, bytes).await?;
    let (files, mut fields) = (Arc::clone(&state.texts), Fields::new("".into()));
    let load = aside(move || {
        let body = Part { node: tree.root(), path: String::new() };
        fields.check(&body, &["files"]);
        let texts = texts_of(&mut fields, &body);
        drop(tree);
        let mut faults: Vec<Fault> = fields.faults.iter().map(|fault| Fault::of(fault, "")).collect();
        faults.extend(texts.keys().filter(|path| !is_relative(path)).take(MAX_FAULTS).map(not_relative));
        match faults.is_empty() {
            true => Ok(files.load(texts)),
            false => Err(ApiError::Invalid(faults)),
        }
    });
    let load = Box::new(load.await??);
    drop(room);
    // A caller that still sends its body would not read the refusal.
    if state.control.has_own_files() {
        return Err(WriteError::OwnFiles.into());
    }
    write::run(&state, &asked, params, Write::ReplaceFiles { load, is_confirmed }).await
}

/// Returns `true` for a path that stays below its directory, and that people can read.
fn is_relative(path: &str) -> bool {
    let is_plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let is_normal = Path::new(path).components().map(|part| part.as_os_str()).eq(path.split('/'));
    is_normal
        && Path::new(path).components().all(|part| is_plain(&part))
        && path.len() <= MAX_PATH_BYTES
        && !path.chars().any(char::is_control)
}

fn not_relative(path: &Arc<str>) -> Fault {
    let path: String = path.chars().take(MAX_SHOWN).collect();
    let detail = format!(
        "{path:?} is not a path of a file below a directory, such as shop/routes.yaml, of at most {MAX_PATH_BYTES} bytes"
    );
    Fault::new(detail)
}

/// As long as paths of Linux may be.
const MAX_PATH_BYTES: usize = 4_096;
/// The characters of such a path that a fault shows.
const MAX_SHOWN: usize = 100;
/// The paths that an answer tells.
const MAX_FAULTS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_directory() {
        for path in ["a.yaml", "a/b.yaml", "a b/ü.json", "..a/b...yaml"] {
            assert!(is_relative(path), "{path}");
        }
        let long = "a".repeat(MAX_PATH_BYTES + 1);
        for path in
            ["", "/a.yaml", "../a.yaml", "a/../b.yaml", "./a.yaml", "a//b.yaml", "a/", "a\n.yaml", &long]
        {
            assert!(!is_relative(path), "{path}");
        }
    }
}
