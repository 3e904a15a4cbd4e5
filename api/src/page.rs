//! Pages of lists: `limit` and `after` in the query, `next` in the answer.
//!
//! A list begins after the item that `after` names, and has at most `limit` items. `next` is the value of `after` for the next page.
//! Its text has no other meaning for callers.

use std::ops::{Bound, RangeBounds};

use serde::Deserialize;

use crate::problem::ApiError;

/// The page that is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    pub(crate) limit: Option<usize>,
    pub(crate) after: Option<String>,
}

/// The largest page, and what a request gets that asks for no limit: far more than most servers have of anything.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// Reads `limit`.
///
/// # Errors
///
/// [`ApiError::BadRequest`] for 0 and beyond [`MAX_LIMIT`].
pub(crate) fn limit(asked: Option<usize>) -> Result<usize, ApiError> {
    match asked {
        Some(limit) if limit == 0 || limit > MAX_LIMIT => {
            Err(ApiError::BadRequest(format!("limit={limit} is not between 1 and {MAX_LIMIT}")))
        }
        asked => Ok(asked.unwrap_or(MAX_LIMIT)),
    }
}

/// The first `limit` of the items, and the place of the last of them if there are more.
pub(crate) fn cut<T>(
    items: impl Iterator<Item = T>,
    limit: usize,
    place: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    // One more than wanted shows whether there is a next page.
    let mut page: Vec<T> = items.take(limit + 1).collect();
    let has_more = page.len() > limit;
    page.truncate(limit);
    let next = if has_more { page.last().map(place) } else { None };
    (page, next)
}

/// The range of a map behind a key, or the whole map. The cost is logarithmic in the size of the map.
pub(crate) fn behind<K>(after: Option<&K>) -> Behind<'_, K> {
    Behind(after)
}

/// The result of [`behind`].
pub(crate) struct Behind<'k, K>(Option<&'k K>);

impl<K> RangeBounds<K> for Behind<'_, K> {
    fn start_bound(&self) -> Bound<&K> {
        self.0.map_or(Bound::Unbounded, Bound::Excluded)
    }

    fn end_bound(&self) -> Bound<&K> {
        Bound::Unbounded
    }
}

/// Writes a place in a list that is named by several texts.
pub(crate) fn place(parts: &[&str]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| part.replace('%', "%25").replace('/', "%2F")).collect();
    parts.join("/")
}

/// Reads the output of [`place`] with the same number of texts.
///
/// # Errors
///
/// [`ApiError::BadRequest`] for anything else.
pub(crate) fn parts<const N: usize>(after: &str) -> Result<[String; N], ApiError> {
    let parts: Vec<String> =
        after.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%")).collect();
    parts.try_into().map_err(|_| no_place(after))
}

/// An `after` that names no place in the list.
pub(crate) fn no_place(after: &str) -> ApiError {
    ApiError::BadRequest(format!(
        "after={after:?} is not a place in this list: use `next` of the previous page"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn pages_come_to_the_whole_whatever_is_in_the_names() {
        let names = ["", "%", "%2F", "/", "a", "a/b", "ü"];
        let map: BTreeMap<String, ()> = names.iter().map(|name| ((*name).to_owned(), ())).collect();
        for limit in 1..=8 {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let (page, next) =
                    cut(map.range(behind(after.as_ref())), limit, |(key, ())| place(&["x", key]));
                assert!(page.len() <= limit);
                found.extend(page.into_iter().map(|(key, ())| key.clone()));
                let Some(next) = next else { break };
                let [_, key] = parts(&next).unwrap();
                after = Some(key);
            }
            assert!(found.iter().eq(map.keys()), "{limit}: {found:?}");
        }
        assert!(parts::<2>("a").is_err() && limit(Some(0)).is_err() && limit(Some(10_001)).is_err());
    }
}
